package storetest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orreryhq/orrery/libs/store"
)

// Faults are what goes wrong between a client made by Faulty and its etcd. All
// methods may be called from any goroutine.
type Faults struct {
	mu   sync.Mutex
	key  string        // the transaction that fails next is the one that writes a key with this prefix
	lost bool          // it happens all the same
	then bool          // reads fail from then on
	hit  chan struct{} // closed when it has failed
	away bool          // reads fail
}

// LoseAnswer lets the next transaction that writes a key with a prefix happen, and
// loses its answer. With blind, reads fail from then on, until Heal. The channel
// is closed when the answer was lost.
func (f *Faults) LoseAnswer(prefix string, blind bool) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key, f.lost, f.then, f.hit = prefix, true, blind, make(chan struct{})
	return f.hit
}

// Refuse makes the next transaction that writes a key with a prefix fail without
// reaching etcd.
func (f *Faults) Refuse(prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key, f.lost, f.then, f.hit = prefix, false, false, make(chan struct{})
}

// Heal lets everything through again.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key, f.away = "", false
}

// Faulty connects over the network like Client, through faults to be asked for.
func (e *Etcd) Faulty(t testing.TB) (*store.Client, *Faults) {
	t.Helper()
	f := &Faults{}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{e.Endpoint}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(f.intercept)},
	})
	if err != nil {
		t.Fatalf("dialling the test etcd: %v", err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return store.New(cli, store.Options{Log: slog.New(slog.DiscardHandler)}), f
}

// The client tries neither lost nor away again by itself.

func lost() error { return status.Error(codes.Unavailable, "the answer was lost") }
func away() error { return status.Error(codes.Unknown, "reads fail") }

func (f *Faults) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch r := req.(type) {
	case *etcdserverpb.RangeRequest:
		f.mu.Lock()
		failing := f.away
		f.mu.Unlock()
		if failing {
			return away()
		}
	case *etcdserverpb.TxnRequest:
		if fails, happens := f.strike(r); fails {
			if happens {
				_ = invoke(ctx, method, req, reply, cc, opts...)
			}
			return lost()
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// strike says whether a transaction is the one to fail.
func (f *Faults) strike(r *etcdserverpb.TxnRequest) (fails, happens bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key == "" {
		return false, false
	}
	for _, op := range r.Success {
		if put := op.GetRequestPut(); put != nil && strings.HasPrefix(string(put.Key), f.key) {
			f.key, f.away = "", f.then
			defer close(f.hit)
			return true, f.lost
		}
	}
	return false, false
}
