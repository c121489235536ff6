package templatesvc

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestNoConnectionIsRefusedBeforeTheAllowListIsRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	list := newAllowList()
	policy := egress.Policy{Allowed: list.Allowed}
	dial := func(ctx context.Context) error {
		c, err := policy.Dial(ctx, time.Minute, "tcp", l.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	ended, end := context.WithTimeout(t.Context(), time.Nanosecond)
	defer end()
	if _, err := list.Allowed(ended); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a list that is not read: %v", err)
	}
	dialled := make(chan error, 1)
	go func() { dialled <- dial(t.Context()) }()

	etcd := storetest.Start(t)
	c := etcd.Client(t)
	egresstest.AllowLoopback(t, c)
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- c.Follow(ctx, keys.ConfigActive().String(), list) }()
	if err := <-dialled; err != nil {
		t.Errorf("a connection that was asked for before the list was read: %v", err)
	}
	stop()
	<-followed
	list.Reset(nil, 0)
	if err := dial(t.Context()); !errs.Is(err, errs.Denied) {
		t.Errorf("with an empty list: %v", err)
	}
}
