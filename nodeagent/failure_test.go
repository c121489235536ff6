package nodeagent_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
)

func alive(pid int) bool { return pid > 0 && syscall.Kill(pid, 0) == nil }

func awaitGone(t testing.TB, pid int) {
	t.Helper()
	await.That(t, "its end", func() string { return await.Unless(!proctest.Lives(pid), "process %d", pid) })
}

// pidFrom waits for a file with a pid in a running instance's directory.
func (s *site) pidFrom(id fleet.InstanceID, file string) int {
	s.t.Helper()
	var pid int
	await.That(s.t, file, func() string {
		text := s.running(id, file)
		pid, _ = strconv.Atoi(strings.TrimSpace(text))
		return await.Unless(strings.HasSuffix(text, "\n") && pid > 0, "%q", text)
	})
	return pid
}

func TestExitCodeIsKnownAfterAgentWasKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kill := s.spawn()
	go1 := filepath.Join(t.TempDir(), "go")
	pid := s.online("aaaaaa", basic(`while [ ! -e `+go1+` ]; do read -t 0.02 x; done; exit 37`)).PID
	kill()
	if err := os.WriteFile(go1, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, pid)
	s.start(taking)
	st := s.awaitState("aaaaaa", 1, fleet.Crashed)
	if st.Exit == nil || !st.Exit.Known || st.Exit.Code != 37 || st.Reason != fleet.ReasonExited {
		t.Errorf("status %+v, exit %+v", st, st.Exit)
	}
}

func TestStopEndsTreeThatIgnoresTERM(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`trap "" TERM HUP
(setsid sh -c 'trap "" TERM HUP; echo $$ >daemon; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 & )
sh -c 'trap "" TERM HUP; echo $$ >child; while :; do sleep 1; done' &
while :; do sleep 1; done`)
	plan.Stop = fleet.Stop{GraceSeconds: 0, Signal: "KILL"}
	pids := []int{s.online("aaaaaa", plan).PID, s.pidFrom("aaaaaa", "daemon"), s.pidFrom("aaaaaa", "child")}
	s.order("aaaaaa", 1, fleet.OrderStop)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
	for _, pid := range pids {
		awaitGone(t, pid)
	}
}

func TestInstancesOfKilledAgentAreAdopted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kill := s.spawn()
	port := freePort(t)
	s.place("aaaaaa", 1, server(), port)
	before := s.awaitState("aaaaaa", 1, fleet.Online)
	kill()
	s.start(taking)
	after := s.await("aaaaaa", "the instance online", func(st fleet.Status) bool { return st.State == fleet.Online })
	if after.PID != before.PID || !alive(after.PID) || after.ModRev != before.ModRev {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	s.order("aaaaaa", 1, fleet.OrderStop)
	if st := s.awaitState("aaaaaa", 1, fleet.Stopped); st.Exit == nil || st.Exit.Code != 0 {
		t.Errorf("status %+v", st)
	}
}

func TestPortInUseFailsStartAndIsBlocked(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			s := newSite(t)
			s.start(taking)
			port, release := hold(t, network)
			s.place("aaaaaa", 1, server(), port)
			st := s.awaitState("aaaaaa", 1, fleet.Failed)
			if st.Reason != fleet.ReasonPortTaken || !strings.Contains(st.Message, strconv.Itoa(port)) {
				t.Errorf("status %+v", st)
			}
			blocked := s.blocked()
			if len(blocked) != 1 || blocked[0].Port != port {
				t.Fatalf("blocked %+v", blocked)
			}
			comm, err := os.ReadFile("/proc/self/comm")
			if err != nil {
				t.Fatal(err)
			}
			holder := fmt.Sprintf("%s (pid %d)", strings.TrimSpace(string(comm)), os.Getpid())
			for _, want := range []string{holder, "until " + blocked[0].Until.Format(time.TimeOnly)} {
				if !strings.Contains(st.Message, want) {
					t.Errorf("the message %q lacks %q", st.Message, want)
				}
			}
			if blocked[0].By != holder {
				t.Errorf("held by %q, want %q", blocked[0].By, holder)
			}
			release()
			s.awaitUnblocked()
		})
	}
}

func TestEmptyCommandFailsBeforePortCheck(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(" %NOTHING% ")
	plan.Variables = map[string]string{"NOTHING": ""}
	port, _ := hold(t, "tcp")
	s.place("aaaaaa", 1, plan, port)
	if st := s.awaitState("aaaaaa", 1, fleet.Failed); st.Reason != fleet.ReasonCommandMissing {
		t.Errorf("status %+v", st)
	}
	if blocked := s.blocked(); len(blocked) != 0 {
		t.Errorf("blocked %+v", blocked)
	}
}

// hold holds a port until it is released or the test ends.
func hold(t *testing.T, network string) (port int, release func()) {
	if network == "udp" {
		c, err := net.ListenPacket("udp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		release = func() { _ = c.Close() }
		t.Cleanup(release)
		return c.LocalAddr().(*net.UDPAddr).Port, release
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = l.Close() }
	t.Cleanup(release)
	return l.Addr().(*net.TCPAddr).Port, release
}

func TestStopOfUnstartedInstanceStartsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	marker := filepath.Join(t.TempDir(), "started")
	s.order("aaaaaa", 1, fleet.OrderStop)
	s.place("aaaaaa", 1, basic("touch "+marker+"; sleep 100"), 0)
	s.start(taking)
	st := s.awaitState("aaaaaa", 1, fleet.Stopped)
	if st.Exit != nil || st.Reason != fleet.ReasonStopRequested || exists(marker) {
		t.Errorf("status %+v, started %v", st, exists(marker))
	}
}

func TestOrdersOfOtherGenerationsAreIgnored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.place("aaaaaa", 2, basic("sleep 100"), 0)
	s.awaitState("aaaaaa", 2, fleet.Online)
	s.order("aaaaaa", 1, fleet.OrderKill)
	s.online("bbbbbb", basic("sleep 100"))
	if st := s.status("aaaaaa"); st.State != fleet.Online {
		t.Errorf("status %+v", st)
	}
}

func TestCrashReportsExit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.place("aaaaaa", 1, basic("echo last words; exit 3"), 0)
	if st := s.awaitState("aaaaaa", 1, fleet.Crashed); st.Reason != fleet.ReasonExited || st.Exit.Code != 3 {
		t.Errorf("status %+v", st)
	}
	if err := syscall.Kill(s.online("bbbbbb", basic("sleep 100")).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if st := s.awaitState("bbbbbb", 1, fleet.Crashed); st.Reason != fleet.ReasonKilledBySignal || st.Exit.Signal != "KILL" {
		t.Errorf("status %+v", st)
	}
	s.place("cccccc", 1, basic("exit 0"), 0)
	if st := s.awaitState("cccccc", 1, fleet.Stopped); st.Reason != fleet.ReasonExitedByItself {
		t.Errorf("status %+v", st)
	}
	lines, err := s.api().Tail(t.Context(), "aaaaaa", 5)
	if err != nil || len(lines) != 1 || lines[0].Text != "last words" {
		t.Errorf("log after the crash: %+v, %v", lines, err)
	}
	s.remove(keys.Placement(node, "aaaaaa"))
	await.That(t, "the log gone with the record", func() string {
		_, err := s.api().Tail(t.Context(), "aaaaaa", 5)
		return await.Unless(errs.Is(err, errs.NotFound) && !exists(filepath.Join(s.dir, "logs", "aaaaaa.log")), "%v", err)
	})
}

func TestRestartingGroupRestartsInPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`if [ -e once ]; then sleep 100; fi; touch once; exit 1`)
	plan.OnCrash = fleet.CrashRestart
	s.place("aaaaaa", 1, plan, 0)
	st := s.await("aaaaaa", "a second run", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
	if st.Reason != fleet.ReasonRestartedInPlace || !alive(st.PID) {
		t.Errorf("status %+v", st)
	}
}

func TestSlowStartFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := server()
	plan.Command, plan.StartupTimeoutSeconds = "sleep 100", 1
	s.place("aaaaaa", 1, plan, freePort(t))
	if st := s.awaitState("aaaaaa", 1, fleet.Failed); st.Reason != fleet.ReasonStartTimeout {
		t.Errorf("status %+v", st)
	}
}

func TestFailedPreparationHasReason(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic("true")
	plan.Layers = []fleet.PlanLayer{{TemplateRef: content.TemplateRef{Group: "games", Name: "gone"}}}
	s.place("aaaaaa", 1, plan, 0)
	if st := s.awaitState("aaaaaa", 1, fleet.Failed); st.Reason != fleet.ReasonTemplateMissing || !strings.Contains(st.Message, "games/gone") {
		t.Errorf("status %+v", st)
	}
	plan.Layers[0].Digest = strings.Repeat("0", 64)
	s.place("bbbbbb", 1, plan, 0)
	if st := s.awaitState("bbbbbb", 1, fleet.Failed); st.Reason != fleet.ReasonTemplateFetch {
		t.Errorf("status %+v", st)
	}
	plan.Layers, plan.Runtime = nil, fleet.RuntimeDocker
	s.place("cccccc", 1, plan, 0)
	if st := s.awaitState("cccccc", 1, fleet.Failed); st.Reason != fleet.ReasonRuntimeMissing {
		t.Errorf("status %+v", st)
	}
	s.write(keys.Placement(node, "dddddd"), fleet.Placement{Instance: "dddddd", Group: "lobby", Node: node, Generation: 1, Plan: "none"})
	if st := s.awaitState("dddddd", 1, fleet.Failed); st.Reason != fleet.ReasonPlanMissing {
		t.Errorf("status %+v", st)
	}
}

func TestShutdownStopsInstancesIfConfigured(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.place("aaaaaa", 1, server(), freePort(t))
	pid := s.awaitState("aaaaaa", 1, fleet.Online).PID
	s.stop()
	st := s.status("aaaaaa")
	if st.State != fleet.Stopped || st.Reason != fleet.ReasonAgentShutdown || alive(pid) {
		t.Errorf("status %+v", st)
	}
	if _, err := store.Get(t.Context(), s.store, keys.NodeSession(node)); !errs.Is(err, errs.NotFound) {
		t.Errorf("the session is still there: %v", err)
	}
}

func TestShutdownKeepsInstancesByDefault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	s.place("aaaaaa", 1, server(), freePort(t))
	before := s.awaitState("aaaaaa", 1, fleet.Online)
	s.stop()
	if !alive(before.PID) {
		t.Fatal("the instance ended with its agent")
	}
	s.start(taking)
	s.order("aaaaaa", 1, fleet.OrderKill)
	if st := s.awaitState("aaaaaa", 1, fleet.Stopped); st.Epoch == before.Epoch {
		t.Error("written under the old session")
	}
	awaitGone(t, before.PID)
}

func TestDataDirectoryBelongsToOneAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	second, err := nodeagent.New(s.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), s.dir) {
		t.Errorf("a second agent: %v", err)
	}
}

func TestOutageKeepsInstancesAndRestartsCrashed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.online("aaaaaa", basic("echo $$ >pid; sleep 1000"))
	first := s.pidFrom("aaaaaa", "pid")
	s.etcd.Stop()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var second int
	await.That(t, "a second run", func() string {
		text := s.running("aaaaaa", "pid")
		second, _ = strconv.Atoi(strings.TrimSpace(text))
		return await.Unless(second != 0 && second != first && alive(second), "%q", text)
	})
	s.etcd.Restart(t)
	st := s.await("aaaaaa", "the second run reported", func(st fleet.Status) bool { return st.Restarts == 1 && st.State == fleet.Online })
	if st.PID != second {
		t.Errorf("status %+v, want pid %d", st, second)
	}
}

func TestLostSessionIsReplacedWithoutEffect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	before := s.online("aaaaaa", basic("sleep 1000"))
	session, err := store.Get(t.Context(), s.store, keys.NodeSession(node))
	if err != nil {
		t.Fatal(err)
	}
	s.remove(keys.NodeSession(node)) // fences everything the agent writes
	s.etcd.RevokeAll(t)
	lost := before
	lost.State, lost.Reason = fleet.Offline, fleet.ReasonNodeLost
	s.write(keys.Status("aaaaaa"), lost)
	st := s.await("aaaaaa", "online again", func(st fleet.Status) bool { return st.State == fleet.Online })
	if st.PID != before.PID || st.Epoch <= session.CreateRev || !alive(st.PID) {
		t.Errorf("before %+v\nafter %+v", before, st)
	}
}

func TestInstanceWithoutRecordKeepsRunning(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	pid := s.online("aaaaaa", basic("sleep 1000")).PID
	s.remove(keys.Placement(node, "aaaaaa"))
	s.online("bbbbbb", basic("sleep 1000"))
	if !alive(pid) {
		t.Error("a missing record ended a process")
	}
}

func TestHigherGenerationFollowsEndOfLower(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := server()
	plan.Static = true
	plan.Layers = []fleet.PlanLayer{s.library.add("base", map[string]string{"config": "fresh"})}
	port := freePort(t)
	s.place("aaaaaa", 1, plan, port)
	first := s.awaitState("aaaaaa", 1, fleet.Online)
	data := filepath.Join(s.dir, "static", "lobby", "lobby-1")
	if err := os.WriteFile(filepath.Join(data, "config"), []byte("grown"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.place("aaaaaa", 2, plan, port)
	second := s.awaitState("aaaaaa", 2, fleet.Online)
	if alive(first.PID) || second.PID == first.PID {
		t.Error("the first generation still runs")
	}
	if b, err := os.ReadFile(filepath.Join(data, "config")); string(b) != "grown" {
		t.Errorf("the data of a static instance is %q, %v", b, err)
	}
}

func TestAbandonedInstanceIsNotStarted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write(keys.Status("aaaaaa"), fleet.Status{
		Instance: "aaaaaa", Group: "lobby", Node: node, Generation: 1, State: fleet.Offline, Reason: fleet.ReasonNodeLost,
	})
	s.place("aaaaaa", 1, basic("sleep 1000"), 0)
	s.start(nil)
	st := s.await("aaaaaa", "its end", func(st fleet.Status) bool { return st.State.Terminal() })
	if st.State != fleet.Failed || st.Reason != fleet.ReasonNodeLost {
		t.Errorf("status %+v", st)
	}
}

func TestFailedJournalWriteIsRetried(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	id := s.id(1)
	path := filepath.Join(s.dir, "journal", string(id)+".json")
	if err := os.Mkdir(path+".tmp", 0o700); err != nil { // makes every write fail
		t.Fatal(err)
	}
	s.online(id, basic("exec sleep 1000"))
	if exists(path) {
		t.Fatal("the journal took the entry all the same")
	}
	if err := os.Remove(path + ".tmp"); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the entry in the journal", func() string {
		b, err := os.ReadFile(path)
		return await.Unless(strings.Contains(string(b), `"ONLINE"`), "%s %v", b, err)
	})
}

func TestRefusedKillIsRetried(t *testing.T) {
	t.Parallel()
	for action, signal := range map[fleet.OrderAction]string{fleet.OrderKill: "TERM", fleet.OrderStop: "KILL"} {
		t.Run(string(action), func(t *testing.T) {
			s := newSite(t)
			agent, kill := s.spawnAt(s.etcd.Endpoint)
			plan := basic("sleep 1000")
			plan.Stop.Signal = signal
			s.place("aaaaaa", 1, plan, 0)
			s.awaitState("aaaaaa", 1, fleet.Online)
			var before unix.Rlimit
			if err := unix.Prlimit(agent, unix.RLIMIT_NOFILE, nil, &before); err != nil {
				t.Fatal(err)
			}
			if err := unix.Prlimit(agent, unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max}, nil); err != nil {
				t.Fatal(err)
			}
			s.order("aaaaaa", 1, action)
			s.awaitState("aaaaaa", 1, fleet.Stopping)
			if err := unix.Prlimit(agent, unix.RLIMIT_NOFILE, &before, nil); err != nil {
				t.Fatal(err)
			}
			s.awaitState("aaaaaa", 1, fleet.Stopped)
			kill()
			s.start(taking)
		})
	}
}
