package nodeagent_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
)

// bedrock answers pings on a port like a Bedrock server with some players, until it is muted.
type bedrock struct {
	players atomic.Int64
	mute    atomic.Bool
}

func (b *bedrock) serve(t *testing.T, port int) {
	t.Helper()
	c, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { _ = c.Close(); running.Wait() })
	running.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if b.mute.Load() || n < 25 {
				continue
			}
			line := fmt.Sprintf("MCPE;x;1;1;%d;20;", b.players.Load())
			pong := append([]byte{0x1c}, make([]byte, 16)...)
			pong = append(pong, buf[9:25]...)
			pong = binary.BigEndian.AppendUint16(pong, uint16(len(line)))
			_, _ = c.WriteTo(append(pong, line...), from)
		}
	})
}

// watched is a plan of a server that is probed often as a Bedrock server.
func watched() fleet.Plan {
	p := basic("sleep 1000")
	p.Readiness.Type = fleet.CheckBedrock
	p.Liveness = fleet.Liveness{Check: fleet.Check{Type: fleet.CheckBedrock}, IntervalSeconds: 0.1, TimeoutSeconds: 0.2, Failures: 2}
	return p
}

func TestReadyByConsoleLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`echo "Done (0s)! is not at the start"; read line; echo "Done (1s)! For help, type help"; sleep 1000`)
	plan.Readiness = fleet.Check{Type: fleet.CheckLog, Pattern: `^Done \([0-9]+s\)! For`}
	s.place("aaaaaa", 1, plan, 0)
	s.awaitState("aaaaaa", 1, fleet.Starting)
	if err := s.api().WriteLine(t.Context(), "aaaaaa", "go"); err != nil {
		t.Fatal(err)
	}
	if st := s.awaitState("aaaaaa", 1, fleet.Online); st.Reason != fleet.ReasonReady {
		t.Errorf("%+v", st)
	}
}

func TestReadyByHeartbeat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic("sleep 1000")
	plan.Readiness.Type = fleet.CheckHeartbeat
	s.place("aaaaaa", 1, plan, 0)
	st := s.awaitState("aaaaaa", 1, fleet.Starting)
	api := s.api()
	for _, h := range []client.Heartbeat{{}, {State: "CREATING", Players: new(0)}, {State: "OFFLINE"}, {State: "ONLINE", At: st.StartedAt.Add(-time.Hour)}} {
		if err := api.Heartbeat(t.Context(), "aaaaaa", h); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.WriteLine(t.Context(), "aaaaaa", "x"); err != nil { // after this, the driver has processed earlier output
		t.Fatal(err)
	}
	if now := s.status("aaaaaa"); now.State != fleet.Starting {
		t.Errorf("it is %s by a heartbeat that does not say so, or of a run before", now.State)
	}
	if err := api.Heartbeat(t.Context(), "aaaaaa", client.Heartbeat{State: "ONLINE", Sequence: 5}); err != nil {
		t.Fatal(err)
	}
	s.awaitState("aaaaaa", 1, fleet.Online)
	for _, replayed := range []int64{5, 4} {
		if err := api.Heartbeat(t.Context(), "aaaaaa", client.Heartbeat{Sequence: replayed}); !errs.Is(err, errs.AlreadyExists) {
			t.Errorf("number %d again: %v", replayed, err)
		}
	}
	if err := api.Heartbeat(t.Context(), "aaaaaa", client.Heartbeat{Sequence: 6, Players: new(2)}); err != nil {
		t.Error(err)
	}
	if err := api.Heartbeat(t.Context(), "aaaaaa", client.Heartbeat{Sequence: 7, TPS: new(20.0)}); err != nil {
		t.Error(err)
	}
	if i, err := api.Instance(t.Context(), "aaaaaa"); err != nil || i.Players != 2 || !i.PlayersKnown || i.TPS != 20 || i.SaidState != "ONLINE" {
		t.Errorf("what was not said again is lost: %+v, %v", i, err)
	}
}

func TestReadyByPingOrHeartbeat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic("sleep 1000")
	plan.Readiness.Type, plan.Ping = fleet.CheckAny, fleet.CheckBedrock
	port, b := freePort(t), &bedrock{}
	b.players.Store(3)
	s.place("aaaaaa", 1, plan, port)
	s.place("bbbbbb", 1, plan, freePort(t))
	s.awaitState("aaaaaa", 1, fleet.Starting)
	s.awaitState("bbbbbb", 1, fleet.Starting)
	b.serve(t, port)
	s.awaitState("aaaaaa", 1, fleet.Online)
	await.That(t, "the players that the ping told", func() string {
		i, _, err := s.figures("aaaaaa")
		return await.Unless(err == nil && i.PlayersKnown && i.Players == 3, "%+v, %v", i, err)
	})
	if now := s.status("bbbbbb"); now.State != fleet.Starting {
		t.Errorf("it is %s and neither answered nor said that it is ready", now.State)
	}
	if err := s.api().Heartbeat(t.Context(), "bbbbbb", client.Heartbeat{State: "ONLINE"}); err != nil {
		t.Fatal(err)
	}
	s.awaitState("bbbbbb", 1, fleet.Online)
}

func TestSequenceNumbersSurviveAgentUntilNextRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	plan := basic("sleep 1000")
	plan.OnCrash = fleet.CrashRestart
	pid := s.online(id, plan).PID
	say := func(sequence int64, accepted bool) {
		t.Helper()
		err := s.api().Heartbeat(t.Context(), id, client.Heartbeat{Sequence: sequence})
		if accepted && err != nil || !accepted && !errs.Is(err, errs.AlreadyExists) {
			t.Errorf("number %d: %v", sequence, err)
		}
	}
	say(7, true)
	say(1<<40, true)
	s.stop()
	s.start(taking)
	await.That(t, "the adoption", func() string {
		i, err := s.api().Instance(t.Context(), id)
		return await.Unless(err == nil && i.PID == pid, "%+v, %v", i, err)
	})
	say(7, false)
	say(1<<40, false)
	say(1<<40+1, true)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the next run", func() string {
		st := s.status(id)
		return await.Unless(st.State == fleet.Online && st.PID != pid, "%+v", st)
	})
	say(1, true)
}

func TestHeartbeatDuringLaunchCounts(t *testing.T) {
	contract.Needs(t, "tmux")
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	asked, leave := filepath.Join(bin, "asked"), filepath.Join(bin, "leave")
	patient := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *new-session*) : >%s; until [ -e %s ]; do sleep 0.02; done;; esac\nexec %s \"$@\"\n", asked, leave, tmux)
	if err := os.WriteFile(filepath.Join(bin, "tmux"), []byte(patient), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(taking)
	plan := basic("exec cat")
	plan.Runtime, plan.Readiness.Type = fleet.RuntimeTmux, fleet.CheckHeartbeat
	s.place("aaaaaa", 1, plan, 0)
	await.That(t, "the launch", func() string {
		_, err := os.Stat(asked)
		return await.Unless(err == nil, "%v", err)
	})
	if err := s.api().Heartbeat(t.Context(), "aaaaaa", client.Heartbeat{State: "ONLINE", Players: new(2)}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(leave, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.awaitState("aaaaaa", 1, fleet.Online)
	if i, err := s.api().Instance(t.Context(), "aaaaaa"); err != nil || i.Players != 2 || i.SaidState != "ONLINE" {
		t.Errorf("what it said was forgotten: %+v, %v", i, err)
	}
}

func TestStartTimeoutSaysWhatWasAwaited(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic("sleep 1000")
	plan.Readiness, plan.StartupTimeoutSeconds, plan.OnCrash = fleet.Check{Type: fleet.CheckPort}, 1, fleet.CrashStop
	s.place("aaaaaa", 1, plan, freePort(t))
	st := s.awaitState("aaaaaa", 1, fleet.Failed)
	if st.Reason != fleet.ReasonStartTimeout || !strings.Contains(st.Message, "not ready within 1 s: 127.0.0.1:") || !strings.Contains(st.Message, "refused") {
		t.Errorf("%+v", st)
	}
}

func TestImpossibleCheckFailsStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	for n, c := range []struct {
		spoil func(*fleet.Plan)
		names string
	}{
		{func(p *fleet.Plan) { p.Readiness.Type = fleet.CheckPort }, "its readiness, a check of type port, can never pass: it has no port"},
		{func(p *fleet.Plan) { p.Readiness = fleet.Check{Type: fleet.CheckHTTP, Port: "web"} }, "it has no additional port web"},
		{func(p *fleet.Plan) { p.Readiness = fleet.Check{Type: fleet.CheckLog, Pattern: "("} }, "not a regular expression"},
		{func(p *fleet.Plan) { p.Liveness.Type = fleet.CheckA2S }, "its liveness, a check of type a2s, can never pass: it has no port"},
	} {
		plan := basic("touch started; sleep 1000")
		c.spoil(&plan)
		s.place(s.id(n), 1, plan, 0)
		if st := s.awaitState(s.id(n), 1, fleet.Failed); st.Reason != fleet.ReasonCheckImpossible || !strings.Contains(st.Message, c.names) || !st.StartedAt.IsZero() {
			t.Errorf("%s: %+v", c.names, st)
		}
	}
}

func TestPingsCountPlayers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	port, b := freePort(t), &bedrock{}
	s.place("aaaaaa", 1, watched(), port)
	s.awaitState("aaaaaa", 1, fleet.Starting)
	b.serve(t, port)
	s.awaitState("aaaaaa", 1, fleet.Online)
	for _, n := range []int64{0, 3, 0} {
		b.players.Store(n)
		await.That(t, "the players in the node's report", func() string {
			i, _, err := s.figures("aaaaaa")
			return await.Unless(err == nil && i.PlayersKnown && int64(i.Players) == n && i.MaxPlayers == 20, "%+v, %v", i, err)
		})
	}
	if st := s.status("aaaaaa"); st.State != fleet.Online {
		t.Errorf("%+v", st)
	}
}

func TestUnhealthyServerIsRestarted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	port, b := freePort(t), &bedrock{}
	plan := watched()
	plan.OnCrash = fleet.CrashRestart
	s.place("aaaaaa", 1, plan, port)
	first := s.awaitState("aaaaaa", 1, fleet.Starting)
	b.serve(t, port)
	s.awaitState("aaaaaa", 1, fleet.Online)
	b.mute.Store(true)
	c := s.crashes(1)[0]
	if c.Reason != fleet.ReasonUnhealthy || !strings.Contains(c.Message, "does not answer") {
		t.Errorf("%+v", c)
	}
	b.mute.Store(false)
	// This test holds the port, so the next run finds it in use.
	s.await("aaaaaa", "what follows", func(st fleet.Status) bool {
		return st.State == fleet.Failed && st.Reason == fleet.ReasonPortTaken && st.Restarts == 1
	})
	if first.PID == 0 || exists(fmt.Sprintf("/proc/%d", first.PID)) {
		t.Errorf("process %d lives", first.PID)
	}
}

func TestUnhealthyServerIsOnlyReportedIfConfigured(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	port, b := freePort(t), &bedrock{}
	plan := watched()
	plan.Liveness.Then = fleet.UnhealthyReport
	s.place("aaaaaa", 1, plan, port)
	s.awaitState("aaaaaa", 1, fleet.Starting)
	b.serve(t, port)
	online := s.awaitState("aaaaaa", 1, fleet.Online)
	b.mute.Store(true)
	s.await("aaaaaa", "the reason", func(st fleet.Status) bool { return st.State == fleet.Online && st.Reason == fleet.ReasonUnhealthy })
	b.mute.Store(false)
	well := s.await("aaaaaa", "that it serves again", func(st fleet.Status) bool { return st.Reason == fleet.ReasonReady })
	if well.PID != online.PID || well.Restarts != 0 {
		t.Errorf("%+v after %+v", well, online)
	}
}

func TestMissingHeartbeatsCountOnlyWhileReachable(t *testing.T) {
	t.Parallel()
	var open atomic.Bool
	var asked atomic.Int64
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !open.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer gateway.Close()
	s := newSite(t)
	s.start(func(c *nodeagent.Config) { taking(c); c.APIURL = gateway.URL })
	plan := basic("sleep 1000")
	plan.Liveness = fleet.Liveness{Check: fleet.Check{Type: fleet.CheckHeartbeat}, IntervalSeconds: 0.8}
	plan.OnCrash = fleet.CrashStop
	s.online("aaaaaa", plan)
	await.That(t, "several times its patience", func() string { return await.Unless(asked.Load() >= 4, "%d", asked.Load()) })
	if st := s.status("aaaaaa"); st.State != fleet.Online {
		t.Fatalf("the gateway is away and the instance is %s: %s", st.State, st.Message)
	}
	open.Store(true)
	st := s.awaitState("aaaaaa", 1, fleet.Crashed)
	if st.Reason != fleet.ReasonUnhealthy || !strings.Contains(st.Message, "sent no heartbeat for 800ms") {
		t.Errorf("%+v", st)
	}
}

func TestNextAgentKnowsPlayers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	s.online(id, basic("sleep 1000"))
	if err := s.api().Heartbeat(t.Context(), id, client.Heartbeat{State: "ONLINE", Players: new(3), MaxPlayers: new(9)}); err != nil {
		t.Fatal(err)
	}
	reported := func(after int64) func() string {
		return func() string {
			i, rev, err := s.figures(id)
			if err == nil && rev > after && (i.Players != 3 || i.MaxPlayers != 9) && after > 0 {
				t.Fatalf("forgotten: %+v", i)
			}
			return await.Unless(err == nil && rev > after && i.Players == 3, "%+v, %v", i, err)
		}
	}
	await.That(t, "the players", reported(0))
	s.stop()
	s.start(taking)
	session, err := store.Get(t.Context(), s.store, keys.NodeSession(node))
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the players in the report of the next agent", reported(session.CreateRev))
	if i, err := s.api().Instance(t.Context(), id); err != nil || i.Players != 3 || !i.PlayersKnown {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestRunEndsAfterMaxLifetime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic("sleep 1000")
	plan.MaxLifetimeSeconds = 1
	s.place("aaaaaa", 1, plan, 0)
	if st := s.awaitState("aaaaaa", 1, fleet.Stopped); st.Reason != fleet.ReasonLifetimeOver {
		t.Errorf("%+v", st)
	}
}

// remoteConsole serves a remote console with a password that echoes commands.
func remoteConsole(t *testing.T, host string, port int, password string) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answerRemote(c, password)
			_ = c.Close()
		}
	})
}

func answerRemote(c net.Conn, password string) {
	r := bufio.NewReader(c)
	for {
		var head [12]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint32(head[:])-8)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		id, text := head[4:8], strings.TrimRight(string(body), "\x00")
		kind, answer := uint32(0), "you said "+text
		if head[8] == 3 {
			kind, answer = 2, ""
			if text != password {
				id = []byte{0xff, 0xff, 0xff, 0xff}
			}
		}
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(answer)+10))
		b = binary.LittleEndian.AppendUint32(append(b, id...), kind)
		if _, err := c.Write(append(append(b, answer...), 0, 0)); err != nil {
			return
		}
	}
}

// administered places an instance with a remote console.
func (s *site) administered(id fleet.InstanceID, port int, password string) {
	s.t.Helper()
	plan := basic("sleep 1000")
	plan.FileModifications = []string{"config"}
	plan.Layers = []fleet.PlanLayer{s.library.add("base", map[string]string{"config": "region=%REGION%\n"})}
	plan.AdditionalPorts = []fleet.NamedPort{{Name: "admin", Protocol: "tcp", Range: fleet.PortRange{Start: port, End: port}}}
	plan.RCON = fleet.RCON{Port: "Admin", Password: password}
	s.write(keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan, TouchedAt: time.Now()})
	s.write(keys.Placement(node, id), fleet.Placement{
		Instance: id, Name: "lobby-1", Group: "lobby", Node: node, Generation: 1, Plan: plan.Digest(), PlacedAt: time.Now(),
		Ports: map[string]int{"admin": port},
	})
	s.awaitState(id, 1, fleet.Online)
}

func TestAdoptedInstanceKeepsBuiltVariables(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	port := freePort(t)
	s.administered("aaaaaa", port, "secret-%REGION%")
	s.stop()
	s.start(func(c *nodeagent.Config) {
		c.StopInstancesOnExit, c.Variables = true, map[string]string{"REGION": "south"}
	})
	remoteConsole(t, "127.0.0.1", port, "secret-north")
	await.That(t, "the remote console", func() string {
		answer, err := s.api().RCON(t.Context(), "aaaaaa", "list")
		return await.Unless(err == nil && answer.Answer == "you said list", "%q, %v", answer.Answer, err)
	})
	if files, report, err := exported(s.api().Export(t.Context(), "aaaaaa", "")); err != nil || len(files) != 0 || report.Unchanged != 1 {
		t.Errorf("nobody changed anything: %v, %+v, %v", files, report, err)
	}
}

func TestRCONCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	port := freePort(t)
	place := func(id fleet.InstanceID, password string) { s.administered(id, port, password) }
	place("aaaaaa", "secret-%REGION%")
	place("bbbbbb", "wrong")
	s.online("cccccc", basic("sleep 1000"))
	api := s.api()
	if _, err := api.RCON(t.Context(), "aaaaaa", "list"); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "refused") {
		t.Errorf("nobody listens: %v", err)
	}
	remoteConsole(t, "127.0.0.1", port, "secret-north")
	if answer, err := api.RCON(t.Context(), "aaaaaa", `say "hi" $HOME`); err != nil || answer.Answer != `you said say "hi" $HOME` {
		t.Errorf("%q, %v", answer.Answer, err)
	}
	for id, want := range map[fleet.InstanceID]string{"bbbbbb": "refuses the password", "cccccc": "no remote console"} {
		if _, err := api.RCON(t.Context(), id, "list"); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := api.RCON(t.Context(), "aaaaaa", "a\nb"); errs.FieldOf(err) != "command" {
		t.Errorf("two lines: %v", err)
	}
}
