package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/docker"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/enginetest"
)

// soon is much shorter than the timeout of a call to the engine.
const soon = 10 * time.Second

func TestHangingEngineDoesNotDelayKill(t *testing.T) {
	for name, prepare := range map[string]func(*site, runtime.Process){
		"of a living server": func(*site, runtime.Process) {},
		"after the end": func(s *site, p runtime.Process) {
			if err := p.WriteLine("end"); err != nil {
				s.Fatal(err)
			}
			await.That(s.T, "its end", func() string { return await.Unless(!proctest.Lives(p.Identity().Shell.PID), "it lives") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := enginetest.Start(t)
			s := newSite(t)
			p := s.start(s.spec("stuck", "read line; exit 3"))
			goOn, err := e.Hang()
			if err != nil {
				t.Fatal(err)
			}
			defer goOn()
			prepare(s, p)
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			if err := p.Kill(ctx); err != nil {
				t.Fatal(err)
			}
			if <-p.Exited(); !p.Exit().Known || p.Exit().Code != 137 {
				t.Errorf("exit %+v", p.Exit())
			}
		})
	}
}

// followed runs the runtime until the test ends. checks receives the result of every check.
func (s *site) followed(known ...string) (checks <-chan error) {
	s.Helper()
	said := make(chan error, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		s.Runtime.Run(ctx, docker.Watch{
			Root: s.root,
			Known: func(id string) bool {
				return strings.Contains(strings.Join(known, " "), id)
			},
			OnCheck: func(_ context.Context, missing error) { said <- missing },
		})
	})
	s.Cleanup(func() { cancel(); running.Wait() })
	return said
}

func TestUnneededContainersAreRemoved(t *testing.T) {
	e := enginetest.Start(t)
	s := newSite(t)
	running := s.start(s.spec("running", "sleep 1000"))
	make := func(name, root, state string) {
		t.Helper()
		args := []string{
			"create", "--name", name, "--network", "host", "--volume", "/usr:/usr:ro", "--volume", "/anonymous", "--label", "orrery.agent=ours",
			"--label", "orrery.instance=" + name, "--label", "orrery.directory=" + root + "/running/" + name, enginetest.Image, "sh", "-c", "exit 1",
		}
		if _, err := e.Docker(args...); err != nil {
			t.Fatal(err)
		}
		if state == "exited" {
			if _, err := e.Docker("start", "--attach", name); err == nil {
				t.Fatal("it ended well")
			}
		}
	}
	make("cut", s.root, "created")
	make("ended", s.root, "exited")
	make("known", s.root, "exited")
	make("copied", "/elsewhere", "exited") // of an agent on a copy of the data directory
	s.followed("known")
	left := func(want string) {
		t.Helper()
		await.That(t, "the containers", func() string {
			out, err := e.Docker("ps", "--all", "--format", "{{.Names}}")
			names := strings.Fields(out)
			slices.Sort(names)
			return await.Unless(err == nil && strings.Join(names, " ") == want, "%v, want %s", names, want)
		})
	}
	left("copied known orrery-running")
	if volumes, err := e.Docker("volume", "ls", "--quiet"); err != nil || len(strings.Fields(volumes)) != 2 {
		t.Errorf("anonymous volumes are left: %s, %v", volumes, err)
	}
	make("later", s.root, "exited")
	s.Sweep()
	left("copied known orrery-running")
	if !running.Running() {
		t.Error("a running container was killed")
	}
}

func TestEngineIsOfferedWhileItAnswers(t *testing.T) {
	e := enginetest.Start(t)
	if err := e.End(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	checks := s.followed()
	next := func(missing bool) {
		t.Helper()
		for end := time.After(time.Minute); ; {
			select {
			case err := <-checks:
				if (err != nil) == missing {
					return
				}
			case <-end:
				t.Fatalf("not reached: missing %v", missing)
			}
		}
	}
	next(true)
	if err := e.Run(); err != nil {
		t.Fatal(err)
	}
	next(false)
	if x := s.run(s.spec("first", "exit 4")); x.Code != 4 {
		t.Errorf("exit %+v", x)
	}
	if err := e.End(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	next(true)
}

func TestStartWithoutAnswerIsUnreachable(t *testing.T) {
	e := enginetest.Start(t)
	s := newSite(t)
	if err := e.End(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context(), s.spec("early", "true")); !errors.Is(err, runtime.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	if err := s.Prepare(t.Context(), enginetest.Image); !errors.Is(err, runtime.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

// A run whose identity was lost is killed at its adoption, also without an engine.
func TestUnknownRunIsKilledWithoutTheEngine(t *testing.T) {
	e := enginetest.Start(t)
	s := newSite(t)
	spec := s.spec("unknown", "trap '' TERM; sleep 1000")
	p := s.start(spec)
	if err := e.End(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	adopted, err := s.Adopt(t.Context(), spec, runtime.Identity{BootID: p.Identity().BootID})
	if err != nil {
		t.Fatal(err)
	}
	if err := adopted.Kill(t.Context()); err != nil || proctest.Lives(p.Identity().Server.PID) {
		t.Errorf("it still lives: %v", err)
	}
}

func TestOOMKillWithoutAnAgentIsRecognized(t *testing.T) {
	enginetest.Start(t)
	s := newSite(t)
	spec := s.spec("greedy", "until [ -e go ]; do sleep 0.01; done; exec tail /dev/zero")
	spec.Limits.MemoryMiB = 32
	id := s.startInAgent(spec, nil).Identity
	if err := os.WriteFile(filepath.Join(spec.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await.That(t, "its end", func() string { return await.Unless(!proctest.Lives(id.Shell.PID), "it lives") })
	p, err := s.Adopt(t.Context(), spec, id)
	if err != nil {
		t.Fatal(err)
	}
	if <-p.Exited(); !p.Exit().OOM || p.Exit().LimitMiB != 32 {
		t.Errorf("exit %+v", p.Exit())
	}
}

func TestUnprivilegedAgentRunsItsOwnUser(t *testing.T) {
	e := enginetest.Start(t)
	if err := os.Chmod(strings.TrimPrefix(e.Host(), "unix://"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	reach(t, filepath.Dir(strings.TrimPrefix(e.Host(), "unix://")))
	spec := s.spec("modest", "mkdir made; echo got >made/got; read line")
	for _, dir := range []string{spec.Dir, s.root, filepath.Join(s.root, "docker")} {
		reach(t, dir)
		if err := os.Chown(dir, enginetest.UserID, enginetest.UserID); err != nil {
			t.Fatal(err)
		}
	}
	as := &syscall.Credential{Uid: enginetest.UserID, Gid: enginetest.UserID}
	if did := s.startInAgent(spec, as); did.Refused != "" || !did.MayEnd {
		t.Fatalf("%+v", did)
	}
	got := filepath.Join(spec.Dir, "made/got")
	s.says(got, "got\n")
	if info, err := os.Stat(got); err != nil || info.Sys().(*syscall.Stat_t).Uid != enginetest.UserID {
		t.Errorf("its files belong to another user: %v", err)
	}
	spec.InstanceID, spec.Container.User = "proud", "root"
	if did := s.startInAgent(spec, as); !strings.Contains(did.Refused, "leave container.user and confine.user empty") {
		t.Errorf("%+v", did)
	}
	for user, group := range map[string]int{fmt.Sprintf("%d:0", enginetest.UserID): 0, enginetest.User: enginetest.CrewID} {
		spec.Container.User = user
		if did := s.startInAgent(spec, as); !strings.Contains(did.Refused, fmt.Sprintf("is in group %d of the host, and the agent is not", group)) {
			t.Errorf("%s: %+v", user, did)
		}
	}
	if left, err := e.Docker("ps", "--all", "--quiet", "--filter", "name=orrery-proud"); left != "" || err != nil {
		t.Errorf("left behind: %s %v", left, err)
	}
}

// reach lets all users pass to a directory of the test.
func reach(t *testing.T, dir string) {
	t.Helper()
	for ; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
}

// errand describes what a separate agent process starts; did is the result.
type errand struct {
	Root string
	Spec runtime.Spec
}

type did struct {
	Identity runtime.Identity
	// Refused is why nothing was started, MayEnd whether the agent may kill what it started.
	Refused string
	MayEnd  bool
}

func (e errand) run() (d did) {
	r, err := newRuntime(contract.Host{Dir: e.Root, Owner: "ours"})
	if err != nil {
		return did{Refused: err.Error()}
	}
	p, err := r.Start(context.Background(), e.Spec)
	if err != nil {
		return did{Refused: err.Error()}
	}
	return did{Identity: p.Identity(), MayEnd: syscall.Kill(p.Identity().Shell.PID, 0) == nil}
}

// runErrand is the main function of such a process.
func runErrand() int {
	var e errand
	if err := json.NewDecoder(os.Stdin).Decode(&e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(e.run()); err != nil {
		return 1
	}
	return 0
}

// startInAgent starts a run in a separate process, which has ended when it returns.
func (s *site) startInAgent(spec runtime.Spec, as *syscall.Credential) (d did) {
	s.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	program := filepath.Join(s.root, "agent")
	if b, err := os.ReadFile(exe); err != nil || os.WriteFile(program, b, 0o755) != nil { // another user may not see the test's own one
		s.Fatal(err)
	}
	order, err := json.Marshal(errand{s.root, spec})
	if err != nil {
		s.Fatal(err)
	}
	c := exec.CommandContext(s.Context(), program, "errand")
	c.Stdin, c.Stderr, c.SysProcAttr = bytes.NewReader(order), os.Stderr, &syscall.SysProcAttr{Credential: as}
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err != nil {
		s.Fatal(err)
	}
	return d
}
