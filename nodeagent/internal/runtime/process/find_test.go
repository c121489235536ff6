package process_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

func TestARunWhoseIdentityWasLostIsFoundByItsMarks(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		s := spec(t, "setsid sh -c 'echo $$ >daemon; exec sleep 1000' & cat")
		p := start(t, r, s)
		eventually(t, filepath.Join(s.Dir, "daemon"), func(s string) bool { return strings.HasSuffix(s, "\n") })
		found, ok := find(t, r, s.Dir)[s.InstanceID]
		if !ok || found.Identity != p.Identity() || found.Processes < 3 {
			t.Fatalf("found %+v, want %+v", found, p.Identity())
		}
		if !slices.Contains(found.Env, "ORRERY_INSTANCE_ID="+s.InstanceID) {
			t.Errorf("its environment %q", found.Env)
		}
		again, err := r.Adopt(t.Context(), s, found.Identity)
		if err != nil || !again.Running() {
			t.Fatal(err, again.Running())
		}
		if err := again.WriteLine("still here"); err != nil {
			t.Fatal(err)
		}
		eventually(t, s.LogPath, func(s string) bool { return s == "still here\n" })
		if err := again.Kill(t.Context()); err != nil || again.Running() {
			t.Error(err, again.Running())
		}
		if _, ok := find(t, r, s.Dir)[s.InstanceID]; ok {
			t.Error("found after its end")
		}
	})
}

func TestARunOfAnotherDirectoryIsNotFound(t *testing.T) {
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	start(t, r, spec(t, "sleep 1000"))
	if found := find(t, r, t.TempDir()); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
}

func find(t *testing.T, r *process.Runtime, root string) map[string]runtime.Found {
	t.Helper()
	found, err := r.Find(root)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAfterARebootProcessesWithTheSameNumbersAreLeftAlone(t *testing.T) {
	r, err := process.New(process.Config{BootID: "second"})
	if err != nil {
		t.Fatal(err)
	}
	pid := proctest.Bystander(t)
	same := runtime.ProcessID{PID: pid, Start: proctest.StartTime(t, pid)}
	p, err := r.Adopt(t.Context(), spec(t, "true"), runtime.Identity{BootID: "first", Shell: same, Server: same})
	if err != nil {
		t.Fatal(err)
	}
	if e := exited(t, p); !e.Rebooted || p.Running() {
		t.Errorf("exit %+v, running %v", e, p.Running())
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if !proctest.Lives(pid) {
		t.Error("a bystander was killed")
	}
}

func TestARecycledServerPIDIsNotTakenFromTheNote(t *testing.T) {
	s := spec(t, "sleep 1000")
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	id := start(t, r, s).Identity()
	pid := proctest.Bystander(t)
	if err := os.WriteFile(filepath.Join(s.RunDir, "pid"), []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id.Server = runtime.ProcessID{}
	p, err := r.Adopt(t.Context(), s, id)
	if err != nil || p.Identity().Server.PID != 0 {
		t.Fatalf("identity %+v, %v", p.Identity(), err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil || !proctest.Lives(pid) {
		t.Errorf("a bystander was signalled: %v", err)
	}
}

func TestAStoppedWrapperDoesNotHideItsServersEnd(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		p := start(t, r, spec(t, "sleep 1000"))
		id := p.Identity()
		if err := syscall.Kill(id.Shell.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, filepath.Join("/proc", strconv.Itoa(id.Shell.PID), "stat"), func(s string) bool { return strings.Contains(s, ") T ") })
		if err := syscall.Kill(id.Server.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := exited(t, p); e.Code != 137 || !e.Known {
			t.Errorf("exit %+v", e)
		}
	})
}

func TestAnotherAgentsInstanceOfTheSameIDIsLeftAlone(t *testing.T) {
	if tree := groups(t, "theirs-"+strconv.Itoa(os.Getpid())); tree != nil {
		t.Run("in control groups", func(t *testing.T) { leftAlone(t, process.Config{Tree: tree, Owner: "theirs"}) })
	}
	t.Run("by its environment", func(t *testing.T) { leftAlone(t, process.Config{Owner: "theirs"}) })
}

func leftAlone(t *testing.T, their process.Config) {
	t.Helper()
	theirs, err := process.New(their)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := process.New(process.Config{Owner: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	s := spec(t, "sleep 1000")
	p := start(t, theirs, s)
	elsewhere := s
	elsewhere.RunDir = t.TempDir()
	lost, err := ours.Adopt(t.Context(), elsewhere, runtime.Identity{BootID: p.Identity().BootID})
	if err != nil {
		t.Fatal(err)
	}
	exited(t, lost)
	if len(find(t, ours, s.Dir)) != 0 || !proctest.Lives(p.Identity().Server.PID) {
		t.Error("it was taken for ours")
	}
}

func TestAWrapperThatDiesAtOnceHoldsNobodyUp(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sh"), []byte("#!/bin/sh\nkill -KILL $$\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if e := exited(t, start(t, r, spec(t, "sleep 1000"))); e.Signal != "KILL" {
		t.Errorf("exit %+v", e)
	}
}

// groups opens a tree of control groups that is closed when the test ends; nil
// where the machine has none.
func groups(t *testing.T, owner string) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.Open(owner)
	if err != nil {
		t.Logf("no control groups here: %v", err)
		return nil
	}
	t.Cleanup(tree.Close)
	return tree
}

func TestAHostThatRefusesControlGroupsRunsInstancesAllTheSame(t *testing.T) {
	t.Run("it has none", func(t *testing.T) { runsAllTheSame(t, nil, 0) })
	for n, c := range []struct{ name, file, refusal string }{
		{"the group", "cgroup.max.descendants", "0"},
		{"a start inside it", "cgroup.type", "threaded"}, // leaves children invalid
	} {
		tree := groups(t, fmt.Sprintf("refused-%d-%d", n, os.Getpid()))
		if tree == nil {
			return
		}
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(tree.Dir(), c.file), []byte(c.refusal), 0); err != nil {
				t.Fatal(err)
			}
			runsAllTheSame(t, tree, 1)
		})
	}
}

// runsAllTheSame runs and kills two instances and demands that the log tells of a
// refusal so many times.
func runsAllTheSame(t *testing.T, tree *cgroup.Tree, told int) {
	t.Helper()
	var log bytes.Buffer
	r, err := process.New(process.Config{Tree: tree, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p := start(t, r, spec(t, "sleep 1000 & exec sleep 1000"))
		if err := p.Kill(t.Context()); err != nil || proctest.Lives(p.Identity().Server.PID) {
			t.Errorf("killing: %v", err)
		}
	}
	if n := strings.Count(log.String(), "the host refuses control groups"); n != told {
		t.Errorf("said %d times, want %d:\n%s", n, told, &log)
	}
}
