package nodeagent_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
)

// shortDir is a data directory with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "data")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// parent is the parent process of a process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	pid, err = strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestTerminalIsRunAdoptedWrittenToAndStopped(t *testing.T) {
	t.Parallel()
	for _, name := range []fleet.RuntimeName{fleet.RuntimeTmux, fleet.RuntimeScreen} {
		t.Run(string(name), func(t *testing.T) {
			contract.Needs(t, string(name))
			s := newSite(t)
			s.dir = shortDir(t)
			s.start(nil)
			plan := basic(`[ -t 0 ] && while read line; do echo "$line" >>got; [ "$line" = stop ] && exit 0; done`)
			plan.Runtime, plan.Static, plan.Stop.Command = name, true, "stop"
			before := s.online("aaaaaa", plan)
			got := filepath.Join(s.dir, "static", "lobby", "lobby-1", "got")
			says := func(want string) {
				t.Helper()
				await.That(t, "what was typed", func() string {
					b, _ := os.ReadFile(got)
					return await.Unless(string(b) == want, "%q", b)
				})
			}
			if err := s.api().WriteLine(t.Context(), "aaaaaa", `say "hi" $HOME ; Enter`); err != nil {
				t.Fatal(err)
			}
			says("say \"hi\" $HOME ; Enter\n")
			s.stop()
			s.start(nil)
			await.That(t, "the adopted process taking a line", func() string {
				err := s.api().WriteLine(t.Context(), "aaaaaa", "still here")
				return await.Unless(err == nil, "%v", err)
			})
			if i, err := s.api().Instance(t.Context(), "aaaaaa"); err != nil || i.PID != before.PID {
				t.Errorf("%+v, %v", i, err)
			}
			says("say \"hi\" $HOME ; Enter\nstill here\n")
			s.order("aaaaaa", 1, fleet.OrderStop)
			st := s.awaitState("aaaaaa", 1, fleet.Stopped)
			if st.Exit == nil || st.Exit.Code != 0 || !st.Exit.Known {
				t.Errorf("status %+v, exit %+v", st, st.Exit)
			}
		})
	}
}

func TestStopCancelsLaunch(t *testing.T) {
	bin := t.TempDir()
	asked := filepath.Join(bin, "asked")
	// A tmux whose server refuses each session after a delay that is longer than the test waits.
	hesitant := "#!/bin/sh\n[ \"$*\" != \"${*%-V}\" ] && echo tmux 3.4 && exit\n: >>" + asked + "\nsleep 5 >/dev/null 2>&1\necho no server >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "tmux"), []byte(hesitant), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(nil)
	for n, action := range []fleet.OrderAction{fleet.OrderStop, fleet.OrderKill} {
		plan := basic("exec cat")
		plan.Runtime = fleet.RuntimeTmux
		_ = os.Remove(asked)
		s.place(s.id(n), 1, plan, 0)
		await.That(t, "a launch", func() string {
			_, err := os.Stat(asked)
			return await.Unless(err == nil, "%v", err)
		})
		s.order(s.id(n), 1, action)
		if st := s.awaitState(s.id(n), 1, fleet.Stopped); st.PID != 0 {
			t.Errorf("%s: %+v", action, st)
		}
	}
}

func TestMultiplexerEndIsReported(t *testing.T) {
	t.Parallel()
	for _, name := range []fleet.RuntimeName{fleet.RuntimeTmux, fleet.RuntimeScreen} {
		t.Run(string(name), func(t *testing.T) {
			contract.Needs(t, string(name))
			s := newSite(t)
			s.dir = shortDir(t)
			s.start(taking)
			plan := basic("exec cat")
			plan.Runtime = name
			pid := s.online("aaaaaa", plan).PID
			if err := syscall.Kill(parent(t, parent(t, pid)), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if st := s.awaitState("aaaaaa", 1, fleet.Crashed); st.Reason != fleet.ReasonTerminalGone || st.Exit == nil || !st.Exit.Hangup {
				t.Errorf("status %+v, exit %+v", st, st.Exit)
			}
		})
	}
}

func TestNodeWithoutMultiplexerRefuses(t *testing.T) {
	bin := t.TempDir()
	for _, program := range []string{"sh", "bash", "sleep"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, program)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	s := newSite(t)
	s.start(taking)
	n, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []fleet.RuntimeName{fleet.RuntimeTmux, fleet.RuntimeScreen} {
		plan := basic("true")
		plan.Runtime = name
		s.place(s.id(i), 1, plan, 0)
		st := s.awaitState(s.id(i), 1, fleet.Failed)
		if why := string(name) + " is not on the agent's PATH"; n.Offers(name) || st.Reason != fleet.ReasonRuntimeMissing || !strings.Contains(st.Message, why) {
			t.Errorf("%s offered %v, status %+v", name, n.Offers(name), st)
		}
	}
}

func TestRemovedMultiplexerKeepsInstancesKnown(t *testing.T) {
	t.Parallel()
	contract.Needs(t, "tmux")
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(nil)
	plan := basic("exec cat")
	plan.Runtime = fleet.RuntimeTmux
	pid := s.online("aaaaaa", plan).PID
	s.stop()
	s.start(func(c *nodeagent.Config) { taking(c); c.Pane = nil })
	s.order("aaaaaa", 1, fleet.OrderKill)
	if s.awaitState("aaaaaa", 1, fleet.Stopped); proctest.Lives(pid) {
		t.Error("it lives on")
	}
}

// A canceled start must not hide the programs that the host has.
func TestRuntimeDetectionIgnoresCancel(t *testing.T) {
	dir := t.TempDir()
	asked, answer := filepath.Join(dir, "asked"), filepath.Join(dir, "answer")
	script := fmt.Sprintf("#!/bin/sh\n: >%s\nwhile [ ! -e %s ]; do sleep 0.01; done\necho tmux 3.4\n", asked, answer)
	if err := os.WriteFile(filepath.Join(dir, "tmux"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var said bytes.Buffer
	s := newSite(t)
	cfg := s.config()
	cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
	a, err := nodeagent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	await.That(t, "the question", func() string { return await.Unless(exists(asked), "not asked") })
	cancel()
	if err := os.WriteFile(answer, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if strings.Contains(said.String(), "cannot read the version") {
		t.Errorf("the agent said:\n%s", &said)
	}
}

func TestNodePortPlaceholderIsAgentPort(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.online("aaaaaa", basic("echo %NODE_PORT% >port; exec sleep 1000"))
	n, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the port in the command", func() string {
		port := strings.TrimSpace(s.running("aaaaaa", "port"))
		return await.Unless(port != "" && strings.HasSuffix(n.AgentURL, ":"+port), "%q, and the agent is at %s", port, n.AgentURL)
	})
}
