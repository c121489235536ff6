package stop_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
	"github.com/orreryhq/orrery/nodeagent/internal/stop"
)

func run(t *testing.T, command string) (runtime.Process, string) {
	t.Helper()
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	id := "stop" + strings.ReplaceAll(t.Name(), "/", "")
	p, err := r.Start(t.Context(), runtime.Spec{
		InstanceID: id, Dir: dir, RunDir: filepath.Join(dir, "run"), LogPath: log, Command: command,
		Env: []string{"PATH=" + os.Getenv("PATH"), "ORRERY_INSTANCE_ID=" + id},
	})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for { // until its traps are set
		b, _ := os.ReadFile(log)
		if strings.Contains(string(b), "up") {
			return p, log
		}
		if time.Now().After(deadline) {
			t.Fatalf("not up: %q", b)
		}
		<-time.After(time.Millisecond)
	}
}

func TestTheSequence(t *testing.T) {
	const long = time.Hour
	cases := []struct {
		name, command string
		policy        stop.Policy
		force         bool
		code          int
	}{
		{"the line is enough", `echo up; read l; [ "$l" = stop ] && exit 3; sleep 1000`, stop.Policy{Line: "stop", Grace: long, Signal: syscall.SIGTERM, KillAfter: long}, false, 3},
		{"the signal follows the grace", `trap 'exit 4' TERM; echo up; while true; do sleep 0.01; done`, stop.Policy{Line: "stop", Grace: time.Millisecond, Signal: syscall.SIGTERM, KillAfter: long}, false, 4},
		{"without a line the signal comes at once", `trap 'exit 5' INT; echo up; while true; do sleep 0.01; done`, stop.Policy{Grace: long, Signal: syscall.SIGINT, KillAfter: long}, false, 5},
		{"what ignores both is killed", `trap '' TERM; echo up; while true; do sleep 0.01; done`, stop.Policy{Line: "stop", Grace: time.Millisecond, Signal: syscall.SIGTERM, KillAfter: time.Millisecond}, false, 137},
		{"force waits for nothing", `trap '' TERM; echo up; while true; do sleep 0.01; done`, stop.Policy{Line: "stop", Grace: long, Signal: syscall.SIGTERM, KillAfter: long}, true, 137},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, _ := run(t, c.command)
			force := make(chan struct{})
			if c.force {
				close(force)
			}
			if err := stop.Gracefully(t.Context(), p, c.policy, force); err != nil {
				t.Fatal(err)
			}
			<-p.Exited()
			if e := p.Exit(); e.Code != c.code || !e.Known {
				t.Errorf("exit %+v, want %d", e, c.code)
			}
		})
	}
}

func TestAnAgentThatLeavesTakesNoFurtherStep(t *testing.T) {
	p, log := run(t, `trap 'echo term' TERM; echo up; read l; echo got $l; while true; do sleep 0.01; done`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	policy := stop.Policy{Line: "stop", Grace: time.Hour, Signal: syscall.SIGTERM, KillAfter: time.Hour}
	if err := stop.Gracefully(ctx, p, policy, nil); !errs.Is(err, errs.Canceled) {
		t.Errorf("err = %v, want Canceled", err)
	}
	select {
	case <-p.Exited():
		t.Error("the server was ended")
	default:
	}
	if b, _ := os.ReadFile(log); strings.Contains(string(b), "term") {
		t.Errorf("the server was signalled: %q", b)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}
