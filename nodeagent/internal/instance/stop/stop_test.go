package stop_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/stop"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
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
	deadline := time.Now().Add(await.Patience)
	for { // wait until its traps are set
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

func TestGracefully(t *testing.T) {
	const long = time.Hour
	cases := []struct {
		name, command string
		policy        stop.Policy
		force         bool
		code          int
	}{
		{"the line suffices", `echo up; read l; [ "$l" = stop ] && exit 3; sleep 1000`, stop.Policy{Line: "stop", Grace: long, Signal: syscall.SIGTERM, KillAfter: long}, false, 3},
		{"the signal follows the grace", `trap 'exit 4' TERM; echo up; while true; do sleep 0.01; done`, stop.Policy{Line: "stop", Grace: time.Millisecond, Signal: syscall.SIGTERM, KillAfter: long}, false, 4},
		{"without a line the signal comes at once", `trap 'exit 5' INT; echo up; while true; do sleep 0.01; done`, stop.Policy{Grace: long, Signal: syscall.SIGINT, KillAfter: long}, false, 5},
		{"without grace the line is not written", `trap 'exit 6' TERM; echo up; while true; do read -t 0.01 l && exit 3; done`, stop.Policy{Line: "stop", Signal: syscall.SIGTERM, KillAfter: long}, false, 6},
		{"a run that ignores both is killed", `trap '' TERM; echo up; while true; do sleep 0.01; done`, stop.Policy{Line: "stop", Grace: time.Millisecond, Signal: syscall.SIGTERM, KillAfter: time.Millisecond}, false, 137},
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

// stuck is a run that blocks every request to end until it has ended.
type stuck struct {
	runtime.Process
	asked chan string
}

func (p *stuck) WriteLine(string) error {
	p.asked <- "line"
	<-p.Exited()
	return nil
}

func (p *stuck) Signal(syscall.Signal) error {
	p.asked <- "signal"
	<-p.Exited()
	return nil
}

func TestForceKillsDuringStopLine(t *testing.T) {
	for asked, policy := range map[string]stop.Policy{
		"line":   {Line: "stop", Grace: time.Hour, Signal: syscall.SIGTERM, KillAfter: time.Hour},
		"signal": {Signal: syscall.SIGTERM, KillAfter: time.Hour},
	} {
		t.Run(asked, func(t *testing.T) {
			living, _ := run(t, `trap '' TERM; echo up; while true; do sleep 0.01; done`)
			p := &stuck{Process: living, asked: make(chan string, 2)}
			force, done := make(chan struct{}), make(chan error)
			go func() { done <- stop.Gracefully(t.Context(), p, policy, force) }()
			if got := <-p.asked; got != asked {
				t.Errorf("asked by %s first", got)
			}
			close(force)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if e := p.Exit(); e.Signal != "KILL" || len(p.asked) != 0 {
				t.Errorf("exit %+v, %d more things asked", e, len(p.asked))
			}
		})
	}
}

func TestCanceledContextEndsSequence(t *testing.T) {
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
