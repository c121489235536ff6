package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsServedWithoutRunning(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"help":     {[]string{"--help"}, "--etcd-endpoints"},
		"version":  {[]string{"--version"}, "enforcer "},
		"settings": {[]string{"--print-config", "--records-age", "2h"}, "2h"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(tt.args, nil, &stdout, &stderr); code != config.ExitOK || !strings.Contains(stdout.String(), tt.want) {
				t.Errorf("code %d, stdout %q, stderr %q, want %q", code, &stdout, &stderr, tt.want)
			}
		})
	}
}

func TestWrongSettingsAreNamedAndExitWith2(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := map[string]struct {
		args []string
		want string
	}{
		"an unknown flag":     {[]string{"--etcd-endpoint", "x"}, "etcd-endpoint"},
		"a short session":     {[]string{"--session-ttl", "10ms"}, "session.ttl"},
		"no records":          {[]string{"--records-count", "0"}, "records.count"},
		"a replica of two":    {[]string{"--replica", "a/b"}, "replica"},
		"a level nobody has":  {[]string{"--log-level", "loud"}, "log.level"},
		"a taken admin port":  {[]string{"--admin-address", taken.Addr().String()}, "is in use by another process"},
		"a file that is gone": {[]string{"--config", "/nowhere/enforcer.yaml"}, "enforcer.yaml"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(tt.args, nil, &stdout, &stderr); code != config.ExitUsage || !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("code %d, stderr %q, want %q", code, &stderr, tt.want)
			}
		})
	}
}

func TestKeepsCountsUntilItIsTerminated(t *testing.T) {
	etcd := storetest.Start(t)
	client := etcd.Client(t)
	g := fleet.Group{Name: "lobby", Revision: 1, Spec: fleet.DefaultSpec()}
	g.Spec.Command, g.Spec.Scaling.Min = "serve", 1
	rev, err := client.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Group("lobby"), g)}})
	if err != nil {
		t.Fatal(err)
	}
	v := view.New(client, nil)
	watching, unwatch := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = v.Run(watching) })
	defer running.Wait()
	defer unwatch()

	ended := make(chan int, 1)
	var stdout, stderr bytes.Buffer
	go func() {
		ended <- run([]string{"--etcd-endpoints", etcd.Endpoint, "--replica", "r"}, nil, &stdout, &stderr)
	}()
	deadline, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	snap, err := v.WaitRev(deadline, rev)
	for ; err == nil && snap.Instances.Len() == 0; snap, err = v.WaitRev(deadline, snap.Rev+1) {
	}
	if err != nil {
		t.Fatalf("no instance at revision %d: %v", snap.Rev, err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-ended:
		if code != config.ExitOK {
			t.Errorf("exit code %d: %s", code, &stderr)
		}
	case <-deadline.Done():
		t.Fatal("it did not end")
	}
	if _, err := store.Get(t.Context(), client, keys.Session("enforcer", "r")); !errs.Is(err, errs.NotFound) {
		t.Errorf("its session after the end: %v, want it gone", err)
	}
}
