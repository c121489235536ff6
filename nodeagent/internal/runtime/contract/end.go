package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

func howARunEnds(s *subject) {
	r := s.runtime()
	for _, c := range []struct {
		name, command string
		want          runtime.Exit
	}{
		{"a clean exit", "true", runtime.Exit{Known: true}},
		{"an exit code", "exit 7", runtime.Exit{Code: 7, Known: true}},
		{"a signal", "kill -SEGV $$", runtime.Exit{Code: 139, Signal: "SEGV", Known: true}},
		{"a missing command", "no-such-command-here", runtime.Exit{Code: 127, Known: true}},
	} {
		s.Run(c.name, func(t *testing.T) {
			s := &subject{T: t, host: s.host, maker: s.maker}
			got := s.exit(s.start(r, s.spec(c.command)))
			if got.At.IsZero() {
				s.Error("no time")
			}
			got.At = time.Time{}
			if got != c.want {
				s.Errorf("exit %+v, want %+v", got, c.want)
			}
		})
	}
}

func ownPID(s *subject) {
	p := s.start(s.runtime(), s.spec("sleep 1000"))
	pid := p.Identity().Server.PID
	comm := s.eventually(filepath.Join("/proc", strconv.Itoa(pid), "comm"), func(s string) bool { return s == "sleep\n" })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
	if e := s.exit(p); e.Code != 137 || e.Signal != "KILL" || !e.Known || e.Hangup {
		s.Errorf("%s ended as %+v", comm, e)
	}
}

func theRestIsGone(s *subject) {
	r := s.runtime()
	for _, who := range []string{"server", "shell", "nobody"} {
		s.Run(who, func(t *testing.T) {
			s := &subject{T: t, host: s.host, maker: s.maker}
			spec := s.spec("setsid sh -c 'echo $$ >daemon; exec sleep 1000' & while true; do sleep 1; done")
			p := s.start(r, spec)
			daemon := s.pid(spec, "daemon")
			switch who {
			case "server":
				_ = syscall.Kill(p.Identity().Server.PID, syscall.SIGKILL)
			case "shell":
				_ = syscall.Kill(p.Identity().Shell.PID, syscall.SIGKILL)
			case "nobody":
				if err := p.Kill(s.Context()); err != nil {
					s.Fatal(err)
				}
			}
			s.exit(p)
			for _, pid := range []int{daemon, p.Identity().Server.PID, p.Identity().Shell.PID} {
				if proctest.Lives(pid) {
					s.Errorf("pid %d outlived the run", pid)
				}
			}
		})
	}
}

func anotherProgram(s *subject) {
	// A daemon outside the session that calls exec all the time.
	spec := s.spec(`setsid sh -c 'echo $$ >daemon; exec sh -c "$0" "$0"' 'exec sh -c "$0" "$0"' & wait`)
	p := s.start(s.runtime(), spec)
	daemon := s.pid(spec, "daemon")
	ctx, cancel := context.WithTimeout(s.Context(), await.Patience)
	defer cancel()
	if err := p.Kill(ctx); err != nil {
		s.Fatal(err)
	}
	if proctest.Lives(daemon) {
		s.Errorf("pid %d survived the kill", daemon)
		_ = syscall.Kill(daemon, syscall.SIGKILL)
	}
}

func groupSignal(s *subject) {
	spec := s.spec(`trap 'exit 4' TERM; echo up; while true; do sleep 0.01; done`)
	p := s.start(s.runtime(), spec)
	s.eventually(spec.LogPath, func(l string) bool { return strings.Contains(l, "up") })
	if err := syscall.Kill(-p.Identity().Shell.PID, syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	if e := s.exit(p); !e.Known || e.Code != 4 {
		s.Errorf("exit %+v", e)
	}
}

func stoppedWrapper(s *subject) {
	p := s.start(s.runtime(), s.spec("sleep 1000"))
	id := p.Identity()
	if err := syscall.Kill(id.Shell.PID, syscall.SIGSTOP); err != nil {
		s.Fatal(err)
	}
	s.eventually(filepath.Join("/proc", strconv.Itoa(id.Shell.PID), "stat"), func(s string) bool { return strings.Contains(s, ") T ") || strings.Contains(s, ") S ") })
	if err := syscall.Kill(id.Server.PID, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
	if e := s.exit(p); e.Code != 137 || !e.Known {
		s.Errorf("exit %+v", e)
	}
}

func nextOne(s *subject) {
	r, spec := s.runtime(), s.spec("cat")
	first := s.start(r, spec)
	if err := first.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	next := s.start(r, spec)
	if err := errors.Join(first.Signal(syscall.SIGKILL), first.Kill(s.Context())); err != nil {
		s.Error(err)
	}
	if err := first.WriteLine("nobody"); first.Attach() != "" && !errs.Is(err, errs.Conflict) {
		s.Errorf("written to the next run: %v", err)
	}
	if !next.Running() || !proctest.Lives(next.Identity().Server.PID) {
		s.Error("the next run was killed")
	}
}

func missingDirectory(s *subject) {
	spec := s.spec("true")
	spec.Dir = filepath.Join(spec.Dir, "none")
	if _, err := s.runtime().Start(s.Context(), spec); !errs.Is(err, errs.Invalid) {
		s.Errorf("err = %v", err)
	}
}

func parallelRuns(s *subject) {
	r := s.runtime()
	var wg sync.WaitGroup
	for i := range 20 {
		spec := s.spec(fmt.Sprintf("echo line; exit %d", i))
		wg.Go(func() {
			p, err := r.Start(s.Context(), spec)
			if err != nil {
				s.Error(err)
				return
			}
			<-p.Exited()
			if e := p.Exit(); e.Code != i || !e.Known {
				s.Errorf("run %d: %+v", i, e)
			}
			if text := said(spec.LogPath); text != "line\n" {
				s.Errorf("run %d logged %q", i, text)
			}
		})
	}
	wg.Wait()
}

func alikeIDs(s *subject) {
	r := s.runtime()
	short, long := s.spec("exec cat >got"), s.spec("exec cat >got")
	long.InstanceID = short.InstanceID + "2"
	long.Env[1] += "2"
	second := s.start(r, long)
	first := s.start(r, short)
	s.write(first, "first")
	s.write(second, "second")
	s.eventually(filepath.Join(short.Dir, "got"), func(got string) bool { return got == "first\n" })
	s.eventually(filepath.Join(long.Dir, "got"), func(got string) bool { return got == "second\n" })
	if err := first.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	if err := first.WriteLine("nobody"); !errs.Is(err, errs.Conflict) {
		s.Errorf("writing to an ended run: %v", err)
	}
	again := s.adopt(r, long, second.Identity())
	s.write(again, "alive")
	s.eventually(filepath.Join(long.Dir, "got"), func(got string) bool { return got == "second\nalive\n" })
}

func lockIsHeld(s *subject) {
	r, spec := s.runtime(), s.spec("setsid sh -c 'echo $$ >daemon; exec sleep 1000' & cat")
	path := filepath.Join(spec.Dir, "lock")
	take := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			s.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			return nil
		}
		return f
	}
	spec.Lock = take()
	p := s.start(r, spec)
	_ = spec.Lock.Close()
	daemon := s.pid(spec, "daemon")
	if take() != nil {
		s.Fatal("the run does not hold its lock")
	}
	if err := p.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	if f := take(); f == nil || proctest.Lives(daemon) {
		s.Error("the lock is held after the last process ended")
	} else {
		_ = f.Close()
	}
}
