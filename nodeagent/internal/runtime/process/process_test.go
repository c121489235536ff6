package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	"github.com/orreryhq/orrery/nodeagent/internal/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

const patience = 30 * time.Second

// TestMain doubles as an agent that can be killed: with AGENT_SPEC set it starts
// a run, prints its identity and waits for its end in vain.
func TestMain(m *testing.M) {
	spec := os.Getenv("AGENT_SPEC")
	if spec == "" {
		os.Exit(m.Run())
	}
	var s runtime.Spec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		panic(err)
	}
	r, err := process.New(process.Config{})
	if err != nil {
		panic(err)
	}
	p, err := r.Start(context.Background(), s)
	if err != nil {
		panic(err)
	}
	b, _ := json.Marshal(p.Identity())
	fmt.Println(string(b))
	select {}
}

// modes are the ways of knowing an instance's processes: by control group, where
// the machine has them, and by session and environment.
func modes(t *testing.T, test func(t *testing.T, r *process.Runtime)) {
	t.Helper()
	owner := "test-" + strconv.Itoa(os.Getpid())
	run := func(name string, tree *cgroup.Tree) {
		t.Run(name, func(t *testing.T) {
			r, err := process.New(process.Config{Tree: tree, Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			test(t, r)
		})
	}
	run("by environment", nil)
	if tree := groups(t, owner); tree != nil {
		run("by control group", tree)
	}
}

func spec(t *testing.T, command string) runtime.Spec {
	t.Helper()
	dir := t.TempDir()
	id := fmt.Sprintf("t%d%d", os.Getpid(), time.Now().UnixNano())
	return runtime.Spec{
		InstanceID: id, Dir: dir, RunDir: filepath.Join(dir, "run"), LogPath: filepath.Join(dir, "log"),
		Command: command, Env: []string{"PATH=" + os.Getenv("PATH"), "ORRERY_INSTANCE_ID=" + id},
	}
}

func start(t *testing.T, r *process.Runtime, s runtime.Spec) runtime.Process {
	t.Helper()
	p, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Kill(ctx); err != nil {
			t.Errorf("killing at the end: %v", err)
		}
	})
	return p
}

func exited(t *testing.T, p runtime.Process) runtime.Exit {
	t.Helper()
	select {
	case <-p.Exited():
		return p.Exit()
	case <-time.After(patience):
		t.Fatalf("did not exit: %+v", p.Identity())
		return runtime.Exit{}
	}
}

// eventually waits for a file to satisfy a condition.
func eventually(t *testing.T, path string, ok func(string) bool) (text string) {
	t.Helper()
	await.That(t, "what "+path+" has to say", func() string {
		b, _ := os.ReadFile(path)
		text = string(b)
		return await.Unless(ok(text), "%q", text)
	})
	return text
}

func TestHowARunEndsIsKnown(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		cases := []struct {
			name, command string
			want          runtime.Exit
		}{
			{"a clean exit", "true", runtime.Exit{Known: true}},
			{"an exit code", "exit 7", runtime.Exit{Code: 7, Known: true}},
			{"a signal", "kill -SEGV $$", runtime.Exit{Code: 139, Signal: "SEGV", Known: true}},
			{"a command that does not exist", "no-such-command-here", runtime.Exit{Code: 127, Known: true}},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				got := exited(t, start(t, r, spec(t, c.command)))
				if got.At.IsZero() {
					t.Error("no time")
				}
				got.At = time.Time{}
				if got != c.want {
					t.Errorf("exit %+v, want %+v", got, c.want)
				}
			})
		}
	})
}

func TestTheServersOwnPIDIsKnownAndKillingItEndsTheRun(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		p := start(t, r, spec(t, "sleep 1000"))
		pid := p.Identity().Server.PID
		comm := eventually(t, filepath.Join("/proc", strconv.Itoa(pid), "comm"), func(s string) bool { return s == "sleep\n" })
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := exited(t, p); e.Code != 137 || e.Signal != "KILL" || !e.Known {
			t.Errorf("%s ended as %+v", comm, e)
		}
	})
}

func TestWhicheverDiesFirstTheRestIsGone(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		for _, who := range []string{"server", "shell"} {
			t.Run(who, func(t *testing.T) {
				s := spec(t, "setsid sh -c 'echo $$ >daemon; exec sleep 1000' & while true; do sleep 1; done")
				p := start(t, r, s)
				daemon, err := strconv.Atoi(strings.TrimSpace(eventually(t, filepath.Join(s.Dir, "daemon"), func(s string) bool { return strings.HasSuffix(s, "\n") })))
				if err != nil {
					t.Fatal(err)
				}
				victim := p.Identity().Server.PID
				if who == "shell" {
					victim = p.Identity().Shell.PID
				}
				if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				exited(t, p)
				for _, pid := range []int{daemon, p.Identity().Server.PID, p.Identity().Shell.PID} {
					if proctest.Lives(pid) {
						t.Errorf("pid %d outlived the run", pid)
					}
				}
			})
		}
	})
}

func TestAProcessThatBecomesAnotherProgramIsFound(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		// A daemon outside the session that is another program all the time.
		s := spec(t, `setsid sh -c 'echo $$ >daemon; exec sh -c "$0" "$0"' 'exec sh -c "$0" "$0"' & wait`)
		p := start(t, r, s)
		daemon, err := strconv.Atoi(strings.TrimSpace(eventually(t, filepath.Join(s.Dir, "daemon"), func(s string) bool { return strings.HasSuffix(s, "\n") })))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := p.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		if proctest.Lives(daemon) {
			t.Errorf("pid %d outlived the kill", daemon)
			_ = syscall.Kill(daemon, syscall.SIGKILL)
		}
	})
}

func TestAnExitCodeIsKnownThoughTheAgentWasKilled(t *testing.T) {
	s := spec(t, "read go; exit 7")
	id := startInAgentAndKillIt(t, s)
	if !proctest.Lives(id.Server.PID) {
		t.Fatal("the server died with its agent")
	}
	release(t, s)
	await.That(t, "the server's end", func() string { return await.Unless(!proctest.Lives(id.Shell.PID), "process %d lives", id.Shell.PID) })
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Adopt(t.Context(), s, id)
	if err != nil {
		t.Fatal(err)
	}
	if e := exited(t, p); e.Code != 7 || !e.Known || e.Signal != "" {
		t.Errorf("exit %+v, want code 7", e)
	}
}

func TestARunIsAdoptedAliveAndItsInputNeverEnded(t *testing.T) {
	s := spec(t, "cat; exit 9")
	id := startInAgentAndKillIt(t, s)
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Adopt(t.Context(), s, id)
	if err != nil {
		t.Fatal(err)
	}
	if p.Identity() != id {
		t.Errorf("identity %+v became %+v", id, p.Identity())
	}
	if err := p.WriteLine("still here"); err != nil {
		t.Fatal(err)
	}
	eventually(t, s.LogPath, func(s string) bool { return s == "still here\n" })
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	exited(t, p)
}

// startInAgentAndKillIt starts a run from another process and kills that with SIGKILL.
func startInAgentAndKillIt(t *testing.T, s runtime.Spec) runtime.Identity {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), "AGENT_SPEC="+string(b))
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	var id runtime.Identity
	if err := json.NewDecoder(out).Decode(&id); err != nil {
		t.Fatal(err)
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	return id
}

func release(t *testing.T, s runtime.Spec) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.RunDir, "stdin"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
}

func TestARecycledPIDIsNotMistaken(t *testing.T) {
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bystander := exec.Command("sleep", "1000")
	bystander.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as every wrapper does
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	live := start(t, r, spec(t, "sleep 1000")).Identity()
	fake := runtime.ProcessID{PID: bystander.Process.Pid, Start: 1}
	p, err := r.Adopt(t.Context(), spec(t, "sleep 1000"), runtime.Identity{BootID: live.BootID, Shell: fake, Server: fake})
	if err != nil {
		t.Fatal(err)
	}
	if e := exited(t, p); e.Known {
		t.Errorf("exit %+v of a process that was somebody else", e)
	}
	if !proctest.Lives(bystander.Process.Pid) {
		t.Error("a bystander was killed")
	}
}

func TestVariablesAShellWouldDropArrive(t *testing.T) {
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := spec(t, "exec env")
	s.Env = append(s.Env, "spring.profiles.active=prod")
	exited(t, start(t, r, s))
	if b, _ := os.ReadFile(s.LogPath); !strings.Contains(string(b), "spring.profiles.active=prod") {
		t.Errorf("environment:\n%s", b)
	}
}

func TestAKilledShellIsKnownToHaveBeenKilled(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		p := start(t, r, spec(t, "sleep 1000"))
		if err := syscall.Kill(p.Identity().Shell.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := exited(t, p); e.Signal != "KILL" || !e.Known {
			t.Errorf("exit %+v", e)
		}
	})
}

func TestASignalToTheWholeGroupKeepsTheServersCode(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		s := spec(t, `trap 'exit 4' TERM; echo up; while true; do sleep 0.01; done`)
		p := start(t, r, s)
		eventually(t, s.LogPath, func(l string) bool { return strings.Contains(l, "up") })
		if err := syscall.Kill(-p.Identity().Shell.PID, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if e := exited(t, p); !e.Known || e.Code != 4 {
			t.Errorf("exit %+v", e)
		}
	})
}

func TestARebootIsToldApart(t *testing.T) {
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Adopt(t.Context(), spec(t, "true"), runtime.Identity{BootID: "another", Shell: runtime.ProcessID{PID: 1, Start: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if e := exited(t, p); !e.Rebooted {
		t.Errorf("exit %+v", e)
	}
}

func TestLinesArriveVerbatimAndInOrder(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		s := spec(t, "exec cat")
		p := start(t, r, s)
		lines := []string{`say "hi" 'there'`, `$HOME ${PATH} $(id)`, `^A \n \\ ; | & > <`, "Enter", "äöü €", "second"}
		for _, l := range lines {
			if err := p.WriteLine(l); err != nil {
				t.Fatal(err)
			}
		}
		want := strings.Join(lines, "\n") + "\n"
		eventually(t, s.LogPath, func(got string) bool { return got == want })
	})
}

func TestAServerThatDoesNotReadIsAnError(t *testing.T) {
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, r, spec(t, "sleep 1000"))
	line := strings.Repeat("x", 4000)
	for range 100 {
		if err = p.WriteLine(line); err != nil {
			break
		}
	}
	if !errs.Is(err, errs.Unavailable) {
		t.Errorf("err = %v, want Unavailable", err)
	}
	if err := p.WriteLine(strings.Repeat("x", 5000)); !errs.Is(err, errs.Invalid) {
		t.Errorf("a line too long: %v", err)
	}
}

func TestTheEnvironmentIsOnlyWhatWasGiven(t *testing.T) {
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGENT_SECRET", "do not leak")
	s := spec(t, "exec env")
	exited(t, start(t, r, s))
	b, err := os.ReadFile(s.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "AGENT_SECRET") || !strings.Contains(string(b), "ORRERY_INSTANCE_ID="+s.InstanceID) {
		t.Errorf("environment:\n%s", b)
	}
}

func TestAMissingDirectoryIsInvalid(t *testing.T) {
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := spec(t, "true")
	s.Dir = filepath.Join(s.Dir, "none")
	if _, err := r.Start(t.Context(), s); !errs.Is(err, errs.Invalid) {
		t.Errorf("err = %v", err)
	}
}

func TestAFullDiskTakesNoExitCodeAndStartsNothing(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		s := spec(t, "read line; exit 7")
		disk := t.TempDir()
		s.RunDir = filepath.Join(disk, "first")
		if err := unix.Mount("orrery-test", disk, "tmpfs", 0, "size=64k"); err != nil {
			t.Logf("no disk to fill here: %v", err)
			return
		}
		defer func() {
			if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		p := start(t, r, s)
		if err := os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, 64<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
		if err := p.WriteLine("go"); err != nil {
			t.Fatal(err)
		}
		if e := exited(t, p); !e.Known || e.Code != 7 {
			t.Errorf("exit %+v", e)
		}
		s.RunDir = filepath.Join(disk, "second")
		if p, err := r.Start(t.Context(), s); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("started %v, %v", p, err)
		}
	})
}

func TestFiftyParallelRuns(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		var wg sync.WaitGroup
		for i := range 50 {
			s := spec(t, fmt.Sprintf("echo line; exit %d", i))
			s.InstanceID += strconv.Itoa(i)
			wg.Go(func() {
				p, err := r.Start(t.Context(), s)
				if err != nil {
					t.Error(err)
					return
				}
				<-p.Exited()
				if e := p.Exit(); e.Code != i || !e.Known {
					t.Errorf("run %d: %+v", i, e)
				}
				if b, _ := os.ReadFile(s.LogPath); string(b) != "line\n" {
					t.Errorf("run %d logged %q", i, b)
				}
			})
		}
		wg.Wait()
	})
}

func BenchmarkStart(b *testing.B) {
	tree, _ := cgroup.Open("bench-" + strconv.Itoa(os.Getpid()))
	defer tree.Close()
	r, err := process.New(process.Config{Tree: tree})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		id := "bench" + strconv.Itoa(i)
		s := runtime.Spec{
			InstanceID: id, Dir: dir, RunDir: filepath.Join(dir, id), LogPath: filepath.Join(dir, id+".log"),
			Command: "sleep 1000", Env: []string{"PATH=" + os.Getenv("PATH"), "ORRERY_INSTANCE_ID=" + id},
		}
		p, err := r.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := p.Kill(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func TestARunThatHasEndedDoesNothingToTheNextOne(t *testing.T) {
	modes(t, func(t *testing.T, r *process.Runtime) {
		s := spec(t, "cat")
		first := start(t, r, s)
		if err := first.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := start(t, r, s)
		if err := errors.Join(first.Signal(syscall.SIGKILL), first.Kill(t.Context())); err != nil {
			t.Error(err)
		}
		if !next.Running() || !proctest.Lives(next.Identity().Server.PID) {
			t.Error("the next run was ended")
		}
	})
}
