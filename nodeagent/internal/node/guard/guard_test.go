package guard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/node/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

// TestMain also runs the guard and an agent.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "guard" {
		os.Exit(guard.Main(os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(startAndDie())
	}
	goleak.VerifyTestMain(m)
}

// errand is what an agent has to run.
type errand struct {
	Spec        runtime.Spec
	Tree, Owner string
}

// startAndDie is an agent that starts a run, prints its identity and dies.
func startAndDie() int {
	var e errand
	err := json.Unmarshal([]byte(os.Args[2]), &e)
	if err == nil {
		var r *process.Runtime
		if r, err = process.New(process.Config{Tree: cgroup.At(e.Tree), Owner: e.Owner}); err == nil {
			var p runtime.Process
			if p, err = r.Start(context.Background(), e.Spec); err == nil {
				err = json.NewEncoder(os.Stdout).Encode(p.Identity())
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// post is a node with a deadline, one instance and its guard.
type post struct {
	guard.Launcher
	t       *testing.T
	file    *deadline.File
	runtime *process.Runtime
	spec    runtime.Spec
}

// modes runs a test with each way of finding an instance's processes.
func modes(t *testing.T, test func(*post)) {
	t.Helper()
	t.Run("by environment", func(t *testing.T) { test(newPost(t, nil)) })
	tree, err := cgroup.Open(owner())
	if err != nil {
		t.Logf("no control groups here: %v", err)
		return
	}
	t.Run("by control group", func(t *testing.T) { test(newPost(t, tree)) })
	tree.Close()
}

func owner() string { return "guards-" + strconv.Itoa(os.Getpid()) }

func newPost(t *testing.T, tree *cgroup.Tree) *post {
	t.Helper()
	dir := t.TempDir()
	id := fmt.Sprintf("t%d%d", os.Getpid(), time.Now().UnixNano())
	p := &post{t: t, spec: runtime.Spec{
		InstanceID: id, Dir: dir, RunDir: filepath.Join(dir, "run"), LogPath: filepath.Join(dir, "log"),
		Env: []string{"PATH=" + os.Getenv("PATH"), "ORRERY_INSTANCE_ID=" + id},
	}}
	p.Launcher = guard.Launcher{Command: []string{"/proc/self/exe", "guard"}, Deadline: filepath.Join(dir, "deadline"), Tree: tree.Dir(), Owner: owner()}
	var err error
	if p.runtime, err = process.New(process.Config{Tree: tree, Owner: p.Owner}); err != nil {
		t.Fatal(err)
	}
	if p.file, err = deadline.Create(p.Deadline); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.file.Close)
	return p
}

// until sets the deadline relative to now.
func (p *post) until(d, margin time.Duration) deadline.Deadline {
	p.t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		p.t.Fatal(err)
	}
	at := deadline.Deadline{Boot: strings.TrimSpace(string(boot)), At: deadline.Now().Add(d + margin/2), Margin: margin}
	if err := p.file.Write(at); err != nil {
		p.t.Fatal(err)
	}
	return at
}

func (p *post) guard(run int) *guard.Guard {
	p.t.Helper()
	g, err := p.Start(p.t.Context(), p.spec.InstanceID, p.spec.RunDir, run)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(g.End)
	return g
}

func (p *post) run(command string) runtime.Process {
	p.t.Helper()
	p.spec.Command = command
	r, err := p.runtime.Start(p.t.Context(), p.spec)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
		defer cancel()
		if err := r.Kill(ctx); err != nil {
			p.t.Errorf("killing at the end: %v", err)
		}
	})
	return r
}

func (p *post) watched(g *guard.Guard, r runtime.Process) {
	p.t.Helper()
	if err := g.Watch(r.Identity()); err != nil {
		p.t.Fatal(err)
	}
}

// pid waits for a number in a file of the instance.
func (p *post) pid(name string) int {
	p.t.Helper()
	n := 0
	await.That(p.t, name, func() string {
		b, _ := os.ReadFile(filepath.Join(p.spec.Dir, name))
		n, _ = strconv.Atoi(strings.TrimSuffix(string(b), "\n"))
		return await.Unless(strings.HasSuffix(string(b), "\n") && n > 0, "%q", b)
	})
	return n
}

func gone(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(await.Patience):
		t.Fatalf("%s is still there", what)
	}
}

const family = `trap "" TERM HUP INT
setsid sh -c 'trap "" TERM HUP; echo $$ >daemon; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &
while :; do sleep 1; done`

// often is a margin that makes a guard check the deadline every few milliseconds.
const often = 40 * time.Millisecond

func TestDeadlineKillsTreeAndLeavesNote(t *testing.T) {
	modes(t, func(p *post) {
		d := p.until(time.Second, 100*time.Millisecond)
		g := p.guard(3)
		r := p.run(family)
		p.watched(g, r)
		daemon := p.pid("daemon")
		gone(p.t, "the instance", r.Exited())
		if now := deadline.Now(); now < d.KillAt() {
			p.t.Errorf("killed %v too early", d.KillAt().Sub(now))
		}
		gone(p.t, "the guard", g.Exited())
		if proctest.Lives(daemon) || proctest.Lives(r.Identity().Server.PID) {
			p.t.Error("something of the tree lives")
		}
		if !guard.Killed(p.spec.RunDir, 3) || guard.Killed(p.spec.RunDir, 2) || guard.Killed(p.spec.RunDir, 4) {
			p.t.Error("the note is not of this run")
		}
	})
}

func TestGuardFollowsChangedDeadline(t *testing.T) {
	p := newPost(t, nil)
	first := p.until(300*time.Millisecond, often)
	g := p.guard(1)
	r := p.run("exec sleep 1000")
	p.watched(g, r)
	p.until(time.Hour, often)
	await.That(t, "the first deadline", func() string {
		return await.Unless(deadline.Now() > first.At, "%v left", first.At.Sub(deadline.Now()))
	})
	if err := syscall.Kill(g.PID(), syscall.SIGTERM); err != nil || !proctest.Lives(g.PID()) || !proctest.Lives(r.Identity().Server.PID) {
		t.Fatalf("ended after a renewal: %v", err)
	}
	p.until(0, often)
	gone(t, "the instance", r.Exited())
	gone(t, "the guard", g.Exited())
	if !guard.Killed(p.spec.RunDir, 1) {
		t.Error("no note")
	}
}

func TestUnreadableFileKeepsLastDeadline(t *testing.T) {
	p := newPost(t, nil)
	p.until(time.Second, often)
	g := p.guard(1)
	r := p.run("exec sleep 1000")
	p.watched(g, r)
	if err := os.Truncate(p.Deadline, 7); err != nil {
		t.Fatal(err)
	}
	gone(t, "the instance", r.Exited())
	if !guard.Killed(p.spec.RunDir, 1) {
		t.Error("no note")
	}
}

func TestGuardExitsWithInstance(t *testing.T) {
	modes(t, func(p *post) {
		p.until(time.Hour, time.Second)
		g := p.guard(1)
		r := p.run(family)
		p.watched(g, r)
		daemon := p.pid("daemon")
		if err := syscall.Kill(r.Identity().Server.PID, syscall.SIGKILL); err != nil {
			p.t.Fatal(err)
		}
		gone(p.t, "the guard", g.Exited())
		gone(p.t, "the instance", r.Exited())
		if e := r.Exit(); !e.Known || e.Signal != "KILL" || proctest.Lives(daemon) || guard.Killed(p.spec.RunDir, 1) {
			p.t.Errorf("exit %+v, daemon %v, noted %v", e, proctest.Lives(daemon), guard.Killed(p.spec.RunDir, 1))
		}
	})
}

func TestAgentDeathDuringStartLeavesNothing(t *testing.T) {
	modes(t, func(p *post) {
		p.until(time.Hour, time.Second)
		g := p.guard(1)
		r := p.run(family)
		daemon := p.pid("daemon")
		g.Forsake()
		gone(p.t, "the instance", r.Exited())
		gone(p.t, "the guard", g.Exited())
		if proctest.Lives(daemon) || guard.Killed(p.spec.RunDir, 1) {
			p.t.Errorf("daemon %v, noted %v", proctest.Lives(daemon), guard.Killed(p.spec.RunDir, 1))
		}
	})
}

func TestDeadlineBeforeIdentityKills(t *testing.T) {
	modes(t, func(p *post) {
		p.until(500*time.Millisecond, often)
		g := p.guard(1)
		r := p.run("exec sleep 1000")
		gone(p.t, "the instance", r.Exited())
		gone(p.t, "the guard", g.Exited())
		if err := g.Watch(r.Identity()); err == nil {
			p.t.Error("a dead guard was told")
		}
	})
}

// alone runs a command from an agent that has died since.
func (p *post) alone(command string) (id runtime.Identity) {
	p.t.Helper()
	p.spec.Command = command
	asked, err := json.Marshal(errand{p.spec, p.Tree, p.Owner})
	if err != nil {
		p.t.Fatal(err)
	}
	said, err := exec.Command("/proc/self/exe", "agent", string(asked)).Output()
	if err == nil {
		err = json.Unmarshal(said, &id)
	}
	if err != nil {
		p.t.Fatal(err, string(said))
	}
	return id
}

func TestProcessOutsideControlGroupIsKilled(t *testing.T) {
	for name, kill := range map[string]func(p *post, id runtime.Identity){
		"by the guard, when the deadline passes": func(p *post, id runtime.Identity) {
			g := p.guard(1)
			if err := g.Watch(id); err != nil {
				p.t.Fatal(err)
			}
			p.until(0, often)
			gone(p.t, "the guard", g.Exited())
		},
		"by a stop": func(p *post, id runtime.Identity) {
			r, err := p.runtime.Adopt(p.t.Context(), p.spec, id)
			if err == nil {
				err = r.Kill(p.t.Context())
			}
			if err != nil {
				p.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(p *post) {
				p.until(time.Hour, often)
				id := p.alone(family)
				daemon := p.pid("daemon")
				if p.Tree != "" {
					outside := filepath.Join(filepath.Dir(p.Tree), "cgroup.procs")
					if err := os.WriteFile(outside, []byte(strconv.Itoa(daemon)), 0); err != nil {
						p.t.Fatal(err)
					}
				}
				kill(p, id)
				if proctest.Lives(id.Server.PID) || proctest.Lives(daemon) {
					p.t.Errorf("the server lives: %v, the daemon: %v", proctest.Lives(id.Server.PID), proctest.Lives(daemon))
					_ = syscall.Kill(daemon, syscall.SIGKILL)
				}
			})
		})
	}
}

// may reports whether this process has a capability.
func may(t *testing.T, capability uint) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		t.Fatal(err)
	}
	return has[capability/32].Effective&(1<<(capability%32)) != 0
}

func TestGuardIsProtectedFromMemoryPressure(t *testing.T) {
	p := newPost(t, nil)
	p.until(time.Hour, time.Second)
	g := p.guard(1)
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	proc := filepath.Join("/proc", strconv.Itoa(g.PID()))
	_, locked, _ := strings.Cut(read(filepath.Join(proc, "status")), "VmLck:")
	locked = strings.Fields(locked)[0]
	score, log := strings.TrimSpace(read(filepath.Join(proc, "oom_score_adj"))), read(filepath.Join(p.spec.RunDir, "guard-log"))
	if may(t, unix.CAP_IPC_LOCK) && (locked == "0" || strings.Contains(log, "swap")) || !may(t, unix.CAP_IPC_LOCK) && locked == "0" && !strings.Contains(log, "may swap this guard out") {
		t.Errorf("%s kB are locked: %s", locked, log)
	}
	if may(t, unix.CAP_SYS_RESOURCE) && score != "-1000" || !may(t, unix.CAP_SYS_RESOURCE) && !strings.Contains(log, "may kill this guard for memory") {
		t.Errorf("oom_score_adj is %s: %s", score, log)
	}
}

func TestReusedPIDIsNotTheInstance(t *testing.T) {
	bystander := exec.Command("sleep", "1000")
	bystander.Env = []string{"ORRERY_INSTANCE_ID=another"}
	bystander.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	pid := bystander.Process.Pid
	for name, until := range map[string]time.Duration{"long before the deadline": time.Hour, "after it": 0} {
		t.Run(name, func(t *testing.T) {
			p := newPost(t, nil)
			p.until(time.Hour, often)
			g := p.guard(1)
			id, err := process.Identify(pid)
			if err != nil {
				t.Fatal(err)
			}
			id.Start--
			boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			if err != nil {
				t.Fatal(err)
			}
			p.until(until, often)
			_ = g.Watch(runtime.Identity{BootID: strings.TrimSpace(string(boot)), Shell: id, Server: id})
			gone(t, "the guard", g.Exited())
			if !proctest.Lives(pid) {
				t.Fatal("a bystander was killed")
			}
		})
	}
}

func TestGuardOfPreviousRunIsEnded(t *testing.T) {
	p := newPost(t, nil)
	p.until(time.Hour, time.Second)
	first := p.guard(1)
	r := p.run("exec sleep 1000")
	p.watched(first, r)
	found, err := p.Find(p.spec.RunDir)
	if err != nil || found == nil || found.PID() != first.PID() {
		t.Fatalf("found %+v, %v", found, err)
	}
	second := p.guard(2)
	gone(t, "the first guard", first.Exited())
	gone(t, "the first guard as found", found.Exited())
	if second.PID() == first.PID() || !proctest.Lives(r.Identity().Server.PID) {
		t.Error("the instance was killed with its guard")
	}
	second.End()
	if found, err := p.Find(p.spec.RunDir); found != nil || err != nil {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestInstanceHasOneGuard(t *testing.T) {
	p := newPost(t, nil)
	p.until(time.Hour, time.Second)
	p.guard(1)
	// The lock's holder cannot be read.
	if err := os.WriteFile(filepath.Join(p.spec.RunDir, "guard"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if g, err := p.Start(t.Context(), p.spec.InstanceID, p.spec.RunDir, 2); err == nil {
		g.End()
		t.Error("a second guard stands")
	}
}

func TestFailedGuardStartSaysWhy(t *testing.T) {
	p := newPost(t, nil)
	for name, c := range map[string]struct {
		change func()
		want   string
	}{
		"no program":        {func() { p.Command = nil }, "no guard program"},
		"program not found": {func() { p.Command = []string{"/does/not/exist"} }, "no such file"},
		"another program":   {func() { p.Command = []string{"/bin/echo", "hello"} }, "hello"},
		"no deadline":       {func() { p.Command = []string{"/proc/self/exe", "guard"} }, "no valid deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			c.change()
			g, err := p.Start(t.Context(), p.spec.InstanceID, p.spec.RunDir, 1)
			if err == nil {
				g.End()
				t.Fatal("it stands")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
