package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/libs/lifecycle"
)

func wantReady(t *testing.T, g *lifecycle.Gates, ready bool, closed ...string) {
	t.Helper()
	if gotReady, gotClosed := g.Ready(); gotReady != ready || !slices.Equal(gotClosed, closed) {
		t.Errorf("Ready() = %v %q, want %v %q", gotReady, gotClosed, ready, closed)
	}
}

func TestReadyRequiresAllGatesOpen(t *testing.T) {
	var g lifecycle.Gates
	wantReady(t, &g, true)
	view, etcd := g.Gate("view"), g.Gate("etcd")
	wantReady(t, &g, false, "etcd", "view")
	view.Open()
	wantReady(t, &g, false, "etcd")
	g.Gate("etcd").Open() // the same gate by name
	wantReady(t, &g, true)
	etcd.Close()
	etcd.Close()
	wantReady(t, &g, false, "etcd")
}

func TestWaitWakesWhenTheLastGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g lifecycle.Gates
		a, b := g.Gate("a"), g.Gate("b")
		time.AfterFunc(1*time.Second, a.Open)
		time.AfterFunc(2*time.Second, a.Close)
		time.AfterFunc(3*time.Second, b.Open)
		time.AfterFunc(4*time.Second, a.Open)
		began := time.Now()
		if err := g.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 4*time.Second {
			t.Errorf("woke after %v, want 4s", waited)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g lifecycle.Gates
		g.Gate("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestStoppingServiceIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g lifecycle.Gates
		part := lifecycle.Component{
			Name:  "api",
			Start: func(context.Context) error { wantReady(t, &g, false, "started"); return nil },
			Stop:  func(context.Context) error { wantReady(t, &g, false, "started"); return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, func() {
			wantReady(t, &g, true)
			cancel()
		})
		if err := lifecycle.Run(ctx, slog.New(slog.DiscardHandler), part, g.Component()); err != nil {
			t.Error(err)
		}
	})
}
