package contract

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
)

// Needs skips a test that needs a missing program, or fails it under ORRERY_CI.
func Needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("ORRERY_CI") != "" {
		t.Fatalf("%s is not installed", program)
	}
	t.Skipf("%s is not installed", program)
}

// Pane is pane.Main on a thread that is not the first one of the process, where the Go runtime may move
// it at any time. What the agent does to the process must hold for this thread too.
func Pane(args []string) int {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if unix.Gettid() != os.Getpid() {
		return pane.Main(args, os.Stderr)
	}
	code := make(chan int)
	go func() { code <- Pane(args) }()
	return <-code
}

// RunTerminal tests what a runtime with terminals also guarantees, for a multiplexer.
func RunTerminal(t *testing.T, make Maker, multiplexer string) {
	t.Helper()
	for name, test := range map[string]func(*subject, string){
		"the server has a terminal that it can use":          hasTerminal,
		"operators can attach with the command":              attach,
		"the end of the multiplexer is reported as a hangup": serverDies,
		"it is reported as a hangup without an agent":        serverDiesUnseen,
		"a closed session ends its server with grace":        closed,
		"the multiplexer belongs to no instance":             belongsToNone,
		"a kill does not wait for a stuck multiplexer":       stuck,
	} {
		t.Run(name, func(t *testing.T) {
			test(&subject{T: t, host: Host{Dir: shortDir(t), Owner: "test-" + strconv.Itoa(os.Getpid())}, maker: make}, multiplexer)
		})
	}
}

func hasTerminal(s *subject, _ string) {
	spec := s.spec(`[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && : </dev/tty && stty size >got; exec cat >/dev/null`)
	s.start(s.runtime(), spec)
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return strings.HasSuffix(got, "\n") && got != "0 0\n" })
}

// attach attaches from a terminal of another runtime.
func attach(s *subject, _ string) {
	r, spec := s.runtime(), s.spec("echo hello operator; exec cat >got")
	p := s.start(r, spec)
	viewer := s.spec(p.Attach())
	viewer.Env = append(viewer.Env, "TERM=xterm", "LANG=C.UTF-8")
	v := s.start(r, viewer)
	s.eventually(viewer.LogPath, func(l string) bool { return strings.Contains(l, "hello operator") })
	s.write(v, "typed by hand")
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == "typed by hand\n" })
	if err := v.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.write(p, "still here")
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == "typed by hand\nstill here\n" })
}

// keeper returns the process of a run's session: the wrapper's parent.
func (s *subject) keeper(id runtime.Identity) int {
	s.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id.Shell.PID), "stat"))
	if err != nil {
		s.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		s.Fatal(err)
	}
	return pid
}

func serverDies(s *subject, _ string) {
	for name, command := range map[string]string{
		"of one that reads":    "cat; exit 0",
		"of one that does not": "trap '' HUP TERM; while true; do sleep 0.1; done",
	} {
		s.Run(name, func(t *testing.T) {
			s := &subject{T: t, host: s.host, maker: s.maker}
			p := s.start(s.runtime(), s.spec(command))
			if err := syscall.Kill(s.keeper(p.Identity()), syscall.SIGKILL); err != nil {
				s.Fatal(err)
			}
			if e := s.exit(p); !e.Hangup || !e.Known {
				s.Errorf("exit %+v", e)
			}
			if proctest.Lives(p.Identity().Server.PID) {
				s.Error("the server still lives")
			}
		})
	}
}

func serverDiesUnseen(s *subject, _ string) {
	for _, command := range []string{"cat; exit 0", "trap '' HUP TERM; while true; do sleep 0.1; done"} {
		s.Run(command, func(t *testing.T) {
			s := &subject{T: t, host: s.host, maker: s.maker}
			spec := s.spec(command)
			id := s.startInAgentAndKillIt(spec)
			keeper := s.keeper(id)
			if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
				s.Fatal(err)
			}
			await.That(s.T, "its end", func() string { return await.Unless(!proctest.Lives(keeper), "process %d lives", keeper) })
			if e := s.exit(s.adopt(s.runtime(), spec, id)); !e.Hangup || !e.Known {
				s.Errorf("exit %+v", e)
			}
		})
	}
}

func closed(s *subject, multiplexer string) {
	spec := s.spec("trap 'echo saved >saved; exit 5' TERM; echo up >up; while true; do sleep 0.05; done")
	r := s.runtime()
	other := s.start(r, s.spec("cat"))
	p := s.start(r, spec)
	s.eventually(filepath.Join(spec.Dir, "up"), func(s string) bool { return s != "" })
	command := strings.Replace(p.Attach(), "attach-session", "kill-session", 1)
	if multiplexer == "screen" {
		command = strings.Replace(p.Attach(), " -x ", " -S ", 1) + " -X quit"
	}
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		s.Fatalf("%s: %v: %s", command, err, out)
	}
	if e := s.exit(p); !e.Hangup || e.Code != 5 {
		s.Errorf("exit %+v", e)
	}
	if said(filepath.Join(spec.Dir, "saved")) != "saved\n" || !other.Running() {
		s.Error("the server got no grace, or another one was killed")
	}
}

func belongsToNone(s *subject, multiplexer string) {
	r := s.runtime()
	spec := s.spec("cat")
	first := s.start(r, spec)
	second := s.start(r, s.spec("exec cat >got"))
	keeper := s.keeper(first.Identity())
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(keeper), "environ"))
	if err != nil {
		s.Fatal(err)
	}
	if strings.Contains(string(b), spec.InstanceID) {
		s.Errorf("%s has the first instance's environment: %q", multiplexer, b)
	}
	if err := first.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.write(second, "alive")
	if !second.Running() {
		s.Error("the other run ended with it")
	}
}

func stuck(s *subject, multiplexer string) {
	p := s.start(s.runtime(), s.spec("trap '' HUP TERM; while true; do sleep 0.1; done"))
	keeper := s.keeper(p.Identity())
	if err := syscall.Kill(keeper, syscall.SIGSTOP); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = syscall.Kill(keeper, syscall.SIGCONT) })
	if err := p.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	if e := s.exit(p); e.Signal != "KILL" || !e.Known {
		s.Errorf("exit %+v", e)
	}
	if multiplexer == "screen" && proctest.Lives(keeper) { // it serves only this session
		s.Error("the session still exists")
	}
}

// Opening creates a runtime of sessions in a directory with the command of package pane.
type Opening func(ctx context.Context, dir string, pane []string) error

// RunRefusals tests that New returns Unavailable and what to do if it cannot run sessions. banner
// is the version output of a release that is too old, tooOld the expected message.
func RunRefusals(t *testing.T, program, banner, tooOld string, open Opening) {
	t.Helper()
	old, none := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(old, program), []byte("#!/bin/sh\necho "+banner+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	for name, c := range map[string]struct {
		path, dir string
		pane      []string
		want      string
	}{
		"not installed":   {path: none, want: "install it"},
		"too old":         {path: old + ":" + path, want: tooOld},
		"no pane program": {path: path, want: "cannot run commands inside sessions"},
		"a path too long": {path: path, pane: []string{"pane"}, dir: "/" + strings.Repeat("x", 100), want: "bytes shorter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			if err := open(t.Context(), c.dir, c.pane); !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
