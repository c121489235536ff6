package process_test

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// blind calls a function while this process can open no descriptor, so that it cannot read any
// other process.
func blind(t *testing.T, call func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	call()
}

func TestUnreadableProcessIsNotTakenForGone(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		s := spec(t, "cat")
		p := start(t, r, s)
		blind(t, func() {
			if again, err := r.Adopt(t.Context(), s, p.Identity()); !errs.Is(err, errs.Unavailable) {
				t.Errorf("adopted %v: %v", again, err)
			}
			if again, err := r.Adopt(t.Context(), s, runtime.Identity{BootID: p.Identity().BootID, Shell: p.Identity().Shell}); !errs.Is(err, errs.Unavailable) {
				t.Errorf("adopted %v without its server's pid: %v", again, err)
			}
			if found, err := r.Find(s.Dir); !errs.Is(err, errs.Unavailable) {
				t.Errorf("found %v: %v", found, err)
			}
			if lives, err := process.Lives(p.Identity().Server); !errs.Is(err, errs.Unavailable) {
				t.Errorf("lives %v: %v", lives, err)
			}
		})
		if !p.Running() || !proctest.Lives(p.Identity().Server.PID) {
			t.Fatal("it was killed")
		}
		again, err := r.Adopt(t.Context(), s, p.Identity())
		if err != nil || !again.Running() {
			t.Fatal(again, err)
		}
	})
}

func TestExitedWaitsUntilProcessesCanBeRead(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		p := start(t, r, spec(t, "sleep 1000 & cat"))
		blind(t, func() {
			if err := p.Kill(context.Background()); !errs.Is(err, errs.Unavailable) {
				t.Errorf("killed without a look: %v", err)
			}
		})
		if !p.Running() {
			t.Fatal("Exited was closed")
		}
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if exited(t, p); proctest.Lives(p.Identity().Server.PID) {
			t.Error("it still lives")
		}
	})
}
