package apigateway

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestStartAsksForAsManyAsSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"maxInstances": 5})
	s.defining("lobby", content.Variable{Key: "mode", Type: content.VariableString, Scope: content.ScopeInstance})
	s.do("POST", "/api/v1/groups/lobby/start", nil).want(200).is("status", "scheduled").is("count", 1)
	r := s.do("POST", "/api/v1/groups/lobby/start", `{"count":3,"variables":{"mode":"duels"}}`).want(200).is("count", 3)
	list, _ := r.field("instances").([]any)
	first, _ := list[0].(map[string]any)
	if first["id"] != "lobby-2" || first["state"] != "SCHEDULED" || first["reason"] != "Unscheduled" || first["memoryMb"] != 1024.0 {
		t.Errorf("started %v", first)
	}
	i, _ := s.view.Snapshot().Find("lobby-2")
	if i.Intent.By != "admin" || i.Intent.Values["mode"] != "duels" || i.Intent.Origin != fleet.OriginManual {
		t.Errorf("intent %+v", i.Intent)
	}
	before := s.revision()
	s.do("POST", "/api/v1/groups/lobby/start", `{"count":2}`).want(409).naming("maxInstances")
	for _, body := range []string{`{"count":0}`, `{"count":-1}`, `{"count":51}`} {
		s.do("POST", "/api/v1/groups/lobby/start", body).want(422).naming("count")
	}
	s.do("POST", "/api/v1/groups/lobby/start", `{"variables":{"a b":"x"}}`).want(422).naming("variables")
	large := `"` + strings.Repeat("x", 32<<10) + `"`
	s.do("POST", "/api/v1/groups/lobby/start", `{"variables":{"a":`+large+`,"b":`+large+`}}`).want(422).naming("variables")
	s.do("POST", "/api/v1/groups/lobby/start", `{"variables":{"a":1}}`).want(400).naming("variables")
	s.do("POST", "/api/v1/groups/lobby/start", `[]`).want(400)
	s.do("POST", "/api/v1/groups/lobby/start?count=x", nil).want(400).naming("count")
	s.do("POST", "/api/v1/groups/nope/start", nil).want(404)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused start wrote something: %v", keys)
	}
	if r := s.do("POST", "/api/v1/groups/lobby/start?count=1", nil).want(200); r.header.Get("Deprecation") == "" || r.header.Get("Warning") == "" {
		t.Errorf("the old way is not marked: %v", r.header)
	}
	s.do("GET", "/api/v1/services?group=lobby", nil).want(200).is("total", 5)
}

// largeValues defines variables for a start and returns values close to their size limit.
func (s *site) largeValues(template string) map[string]string {
	var defined []content.Variable
	values := map[string]string{}
	for n := range 15 {
		key := fmt.Sprintf("text%d", n)
		defined = append(defined, content.Variable{Key: key, Type: content.VariableString, Scope: content.ScopeInstance})
		values[key] = strings.Repeat("<", 4<<10) // JSON writes each as six bytes
	}
	s.defining(template, defined...)
	return values
}

// It runs alone, because the gateway waits for etcd for four seconds only.
func TestAStartWithLargeValuesTakesSeveralTransactions(t *testing.T) {
	s := newSite(t)
	s.group("lobby", map[string]any{"maxInstances": 100})
	values := s.largeValues("lobby")
	const count = 31
	ask := func() *reply {
		return s.do("POST", "/api/v1/groups/lobby/start", map[string]any{"count": count, "variables": values}, "Idempotency-Key", "start")
	}
	ask().want(200).is("count", count)
	ask().want(200).is("count", count)
	snap, seen := s.view.Snapshot(), 0
	for i := range snap.GroupInstances("lobby") {
		if seen++; i.Intent.Values["text3"] != values["text3"] {
			t.Errorf("%s has other values", i.Intent.Name)
		}
		if _, ok := snap.Plans.Get(i.Intent.Plan); !ok {
			t.Errorf("%s has no plan", i.Intent.Name)
		}
	}
	if seen != count {
		t.Errorf("%d instances, want %d", seen, count)
	}
}

func TestParallelStartsNeverExceedTheMaximum(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := newSiteOn(t, s.etcd).as(s.token)
	s.group("lobby", map[string]any{"maxInstances": 12})
	await.That(t, "the group on the other gateway", func() string {
		if r := other.do("GET", "/api/v1/groups/lobby", nil); r.status != 200 {
			return r.raw
		}
		return ""
	})
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		by = map[int]int{}
	)
	for n := range 20 {
		gateway := []*site{s, other}[n%2]
		wg.Go(func() {
			r, err := gateway.try("POST", "/api/v1/groups/lobby/start", nil)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			by[r.status]++
		})
	}
	wg.Wait()
	if by[200] != 12 || by[409] != 8 {
		t.Errorf("statuses %v, want 12 of 200 and 8 of 409", by)
	}
	names := map[string]bool{}
	for _, i := range s.view.Snapshot().Instances.All() {
		names[i.Intent.Name] = true
	}
	if len(names) != 12 {
		t.Errorf("%d names", len(names))
	}
}

func TestFiftyAtOnceFitWhateverTheStoreTakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("many", map[string]any{"maxInstances": 0})
	s.do("POST", "/api/v1/groups/many/start", `{"count":50}`).want(200).is("count", 50)
	s.do("GET", "/api/v1/services?group=many&pageSize=10&page=5", nil).want(200).is("total", 50).is("data.9.id", "many-50").is("data.10", nil)
	if _, ok := s.view.Snapshot().Find("many-50"); !ok {
		t.Error("the names have gaps")
	}
}

func TestWhatNoNodeCanEverHoldIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("huge", map[string]any{"memoryMb": 100_000})
	s.start("huge") // accepted, because no node has joined
	s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 400})
	before := s.revision()
	s.do("POST", "/api/v1/groups/huge/start", nil).want(409).is("error.code", "EXHAUSTED").naming("no node can ever hold")
	s.do("POST", "/api/instances", `{"configurationName":"huge"}`).want(503)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused start left a record: %v", keys)
	}
	s.group("elsewhere", map[string]any{"memoryMb": 100_000, "nodes": []string{"node-2"}})
	s.start("elsewhere")
	s.group("fits", map[string]any{"memoryMb": 4096, "cpu": 400})
	s.start("fits")
	s.start("fits") // has to wait, but is accepted
	// The limit is what a node lets instances reserve.
	s.group("shared", map[string]any{"cpu": 600})
	s.do("POST", "/api/v1/groups/shared/start", nil).want(409)
	s.do("PATCH", "/api/v1/nodes/node-1", `{"room":{"cpuFactor":2,"reserved":{"memoryMb":1000}}}`).want(200)
	s.start("shared")
	s.do("POST", "/api/v1/groups/fits/start", nil).want(409).naming("3096")
}

func TestStoppingIsIdempotentAndWaitsForLostNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	pending, running := s.start("lobby"), s.start("lobby")
	s.status(running, "node-1", fleet.Status{State: fleet.Online, Reason: fleet.ReasonReady, PID: 77, StartedAt: time.Now()})

	s.do("POST", "/api/v1/services/lobby-1/stop", nil).want(200).is("instance.state", "STOPPED").is("changed", true)
	before := s.revision()
	s.do("POST", "/api/v1/services/"+string(pending)+"/stop", nil).want(200).is("status", "stopped").is("changed", false)
	s.do("POST", "/api/v1/instances/lobby-1/force-stop", nil).want(200).is("changed", false)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("stopping what has stopped wrote something: %v", keys)
	}

	s.do("POST", "/api/v1/services/lobby-2/stop", nil).want(200).is("status", "stopping").is("changed", true).is("waitingForNode", nil)
	s.do("POST", "/api/v1/services/lobby-2/stop", nil).want(200).is("changed", false)
	s.loseNode("node-1")
	s.do("POST", "/api/v1/services/lobby-2/force-stop", nil).want(200).is("changed", true).is("status", "force-stopping").
		is("waitingForNode", "node-1").naming("is not connected")
	i, _ := s.view.Snapshot().Instances.Get(running)
	if i.Intent.Stop == nil || !i.Intent.Stop.Force || i.Intent.Stop.By != "admin" || i.Intent.Desired != fleet.DesiredStopped {
		t.Errorf("intent %+v", i.Intent)
	}
	s.do("POST", "/api/v1/services/lobby-9/stop", nil).want(404)
	s.do("POST", "/api/v1/services/zzzzzz/force-stop", nil).want(404)
}

func TestARestartKeepsTheInstance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{"maxInstances": 2})
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.start("lobby")
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	s.do("POST", "/api/v1/services/lobby-1/restart", nil).want(200).is("status", "restarting").is("changed", true)
	s.do("POST", "/api/v1/services/lobby-1/restart", nil).want(200).is("changed", false)
	s.do("POST", "/api/v1/services/lobby-1/start", nil).want(200).is("changed", false)
	if i, _ := s.view.Snapshot().Instances.Get(id); !i.Intent.RestartPending {
		t.Error("nobody will start it again")
	}
	s.do("POST", "/api/v1/services/lobby-1/stop", nil).want(200).is("changed", true)
	if i, _ := s.view.Snapshot().Instances.Get(id); i.Intent.RestartPending {
		t.Error("a stop did not end the restart")
	}
	s.do("POST", "/api/v1/services/lobby-1/start", nil).want(200).is("changed", true)
	s.status(id, "node-1", fleet.Status{State: fleet.Stopped, Exit: &fleet.Exit{Known: true}})
	s.do("POST", "/api/v1/services/lobby-1/stop", nil).want(200)
	s.do("POST", "/api/v1/services/lobby-1/start", nil).want(200).is("instance.generation", 2).is("instance.uid", string(id)).is("instance.state", "SCHEDULED").
		is("instance.node", "").is("instance.port", 0).is("instance.hostAddress", "")
	if s.do("GET", "/api/instances/"+string(id), nil).want(200).is("wrapperNodeId", "").is("allocatedPort", 0); len(s.do("GET", "/api/v1/services?node=node-1", nil).data()) != 0 {
		t.Error("it is listed where its generation before was")
	}
	s.start("lobby")
	s.do("POST", "/api/v1/groups/lobby/start", nil).want(409)
}

func TestOnlyAFinishedRecordIsRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.start("lobby")
	s.do("DELETE", "/api/v1/services/lobby-1", nil).want(409).naming("instance lobby-1 has no node yet: stop it first")
	s.do("POST", "/api/v1/services/lobby-1/command", map[string]any{"command": "list"}).want(409).naming("lobby-1 has no node yet: only a running one has a console")
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	s.do("DELETE", "/api/v1/services/lobby-1", nil).want(409).naming("lobby-1 runs: stop it first")
	s.do("POST", "/api/v1/services/lobby-1/restart", nil).want(200)
	s.status(id, "node-1", fleet.Status{State: fleet.Crashed})
	s.do("DELETE", "/api/v1/services/lobby-1", nil).want(409).naming("lobby-1 is to be started again: stop it first")
	s.do("POST", "/api/v1/services/lobby-1/stop", nil).want(200)
	s.status(id, "node-1", fleet.Status{State: fleet.Crashed, Reason: fleet.ReasonExited, Exit: &fleet.Exit{Code: 3, Known: true}})
	s.do("GET", "/api/v1/services/lobby-1", nil).want(200).is("state", "CRASHED").is("exitCode", 3).is("pid", nil).is("reason", "Exited")
	s.do("DELETE", "/api/v1/services/"+string(id), nil).want(204)
	s.do("GET", "/api/v1/services/"+string(id), nil).want(404)
	s.do("DELETE", "/api/v1/services/"+string(id), nil).want(404)
	snap := s.view.Snapshot()
	if snap.Instances.Len() != 0 || snap.Orphans.Len() != 0 || snap.Names.Len() != 0 {
		t.Errorf("left: %d instances, %d orphans, %d names", snap.Instances.Len(), snap.Orphans.Len(), snap.Names.Len())
	}
}

func TestAnInstanceShowsWhatIsKnownOfIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("base")
	s.group("lobby", map[string]any{"templates": []string{"base"}, "memoryMb": 64, "maxPlayers": 9})
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.start("lobby")
	started := time.Now().Add(-time.Minute)
	states := []struct {
		st   fleet.Status
		want string
	}{
		{fleet.Status{State: fleet.Preparing}, "PREPARING"},
		{fleet.Status{State: fleet.Starting, PID: 5, StartedAt: started}, "STARTING"},
		{fleet.Status{State: fleet.Offline, Reason: fleet.ReasonNodeLost}, "CRASHED"},
		{fleet.Status{State: fleet.Stopping, PID: 5, StartedAt: started}, "STOPPING"},
		{fleet.Status{State: fleet.Online, PID: 5, StartedAt: started, Reason: fleet.ReasonReady}, "RUNNING"},
	}
	for _, st := range states {
		s.status(id, "node-1", st.st)
		r := s.do("GET", "/api/v1/services?state="+st.want, nil).want(200).is("total", 1)
		if st.st.State == fleet.Offline && !strings.Contains(r.raw, `"NODE_LOST"`) {
			t.Errorf("a lost node is not told: %s", r.raw)
		}
	}
	r := s.do("GET", "/api/v1/instances/lobby-1", nil).want(200)
	r.is("id", "lobby-1").is("uid", string(id)).is("group", "lobby").is("node", "node-1").is("state", "RUNNING").is("port", 30000).
		is("memoryMb", 64).is("playerCount", 7).is("maxPlayers", 20).is("tps", 19.5).is("pid", 4242).is("generation", 1).
		is("deploymentRevision", 0).is("groupRevision", 1).is("warm", false).is("templates", []map[string]string{{"name": "base", "digest": "d1"}}).
		is("lastHeartbeat", "2001-09-09T01:46:40Z").is("exitCode", nil).is("attach", "tmux attach")
	if up, _ := r.field("uptimeMs").(float64); up < 60_000 {
		t.Errorf("uptime %v", up)
	}
	if r.header.Get("ETag") == "" {
		t.Error("no ETag")
	}
	s.loseNode("node-1")
	s.do("GET", "/api/v1/services/lobby-1", nil).want(200).is("playerCount", nil).is("pid", 5).is("maxPlayers", 9)
	for query, total := range map[string]int{
		"group=lobby": 1, "group=nope": 0, "node=node-1": 1, "node=nope": 0, "state=running": 1, "state=STOPPED": 0,
		"group=lobby&node=node-1&state=ONLINE": 1,
	} {
		s.do("GET", "/api/v1/services?"+query, nil).want(200).is("total", total)
	}
}

func TestALineReachesTheConsoleAsItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	a := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.start("lobby")
	s.do("POST", "/api/v1/services/lobby-1/command", `{"command":"say hi"}`).want(409)
	s.do("GET", "/api/v1/services/lobby-1/console/history", nil).want(200).is("lines", []any{}).is("truncated", false)
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	line := "say \"a\" $HOME\t\\n;é"
	s.do("POST", "/api/v1/services/lobby-1/command", map[string]string{"command": line}).want(200).is("status", "sent")
	s.do("POST", "/api/instances/"+string(id)+"/execute", map[string]string{"command": "list"}).want(200)
	a.mu.Lock()
	typed := slices.Clone(a.typed)
	a.mu.Unlock()
	if !slices.Equal(typed, []string{line, "list"}) {
		t.Errorf("typed %q", typed)
	}
	s.do("POST", "/api/v1/services/lobby-1/command", map[string]string{"command": "a\nb"}).want(422).naming("command")
	s.do("POST", "/api/v1/services/lobby-1/command", map[string]string{"command": "a\x01"}).want(422).naming("command")
	s.do("POST", "/api/v1/services/lobby-1/command", map[string]string{"command": strings.Repeat("é", 1001)}).want(422).naming("command")
	s.do("POST", "/api/v1/services/lobby-1/command", `{}`).want(422).naming("command")
	s.do("POST", "/api/v1/services/lobby-1/command", `{"command":5}`).want(400).naming("command")
	s.do("POST", "/api/v1/services/nope-1/command", `{"command":"x"}`).want(404)

	a.mu.Lock()
	for n := range 5 {
		a.lines = append(a.lines, fmt.Sprintf("line %d", n))
	}
	a.mu.Unlock()
	s.do("GET", "/api/v1/services/lobby-1/console/history?limit=2", nil).want(200).is("truncated", true).
		is("lines", []map[string]any{{"ts": nil, "line": "line 3", "offset": 0}, {"ts": nil, "line": "line 4", "offset": 0}})
	s.do("GET", "/api/v1/services/lobby-1/console/history?lines=9", nil).want(200).is("truncated", false)
	s.do("GET", "/api/v1/services/lobby-1/console/history?limit=x", nil).want(400).naming("limit")
	s.do("GET", "/api/instances/"+string(id)+"/logs?lines=1", nil).want(200).is("lines", []string{"line 4"})

	s.loseNode("node-1")
	s.do("POST", "/api/v1/services/lobby-1/command", `{"command":"x"}`).want(503).naming("node-1")
	s.do("GET", "/api/v1/services/lobby-1/console/history", nil).want(503).naming("node-1")
}

func TestAnAgentThatDoesNotAnswerIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	a := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.start("lobby")
	s.status(id, "node-1", fleet.Status{State: fleet.Online, PID: 5})
	a.Close()
	for range 8 { // more often than the breaker's threshold
		r := s.do("POST", "/api/v1/services/lobby-1/command", `{"command":"x"}`).want(503).naming("the agent of node node-1")
		if r.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	s.do("GET", "/api/v1/services/lobby-1", nil).want(200).is("pid", 5)
}

func TestAnInstanceMaySpeakForItselfOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	a := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	one, two := s.start("lobby"), s.start("lobby")
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" // of "test"
	s.status(one, "node-1", fleet.Status{State: fleet.Online, TokenHash: hash})
	s.status(two, "node-1", fleet.Status{State: fleet.Online, TokenHash: strings.Repeat("0", 64)})
	own := s.as("test")
	own.do("PUT", "/api/instances/"+string(one)+"/state", `{"state":"ONLINE","players":3}`).want(200).is("players", 3)
	own.do("GET", "/api/instances/"+string(one), nil).want(200)
	own.do("PUT", "/api/instances/"+string(two)+"/state", `{"state":"ONLINE"}`).want(403)
	own.do("DELETE", "/api/instances/"+string(one), nil).want(403)
	own.do("POST", "/api/instances/"+string(one)+"/execute", `{"command":"x"}`).want(403)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.beats) != 1 || *a.beats[0].Players != 3 || a.beats[0].MaxPlayers != nil || a.beats[0].State != "ONLINE" {
		t.Errorf("beats %+v", a.beats)
	}
	s.status(one, "node-1", fleet.Status{State: fleet.Crashed, TokenHash: hash})
	own.do("PUT", "/api/instances/"+string(one)+"/state", `{"state":"ONLINE"}`).want(401)
}

func TestAServerSaysFromInsideThatItIsReadyAndForItselfOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	a := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	one, two := s.start("lobby"), s.start("lobby")
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" // of "test"
	s.status(one, "node-1", fleet.Status{State: fleet.Starting, TokenHash: hash})
	s.status(two, "node-1", fleet.Status{State: fleet.Starting, TokenHash: strings.Repeat("0", 64)})
	own := s.as("test")
	call := func(path string, body any, sequence string) *reply {
		return own.do("POST", path, body, "X-Prexor-Sequence", sequence)
	}
	call("/api/plugin/ready", nil, "1").want(200)
	call("/api/plugin/ready", nil, "1").want(401).naming("X-Prexor-Sequence")
	call("/api/plugin/ready", nil, "0").want(400).naming("X-Prexor-Sequence")
	own.do("POST", "/api/plugin/ready", nil).want(400)
	call("/api/plugin/heartbeat", `{"players":4,"maxPlayers":9,"tps":18.5}`, "2").want(200)
	call("/api/plugin/heartbeat", `{"players":"many"}`, "3").want(400).naming("players")
	call("/api/proxy/heartbeat", `{"mood":"fine"}`, "3").want(200) // existing plugins send more
	for _, path := range []string{"/api/plugin/auth/refresh", "/api/proxy/auth/refresh"} {
		call(path, nil, "4").want(200).is("instanceId", string(one)).is("expiresInSeconds", 900)
		s.do("POST", path, nil).want(401)
	}
	call("/api/plugin/nothing", nil, "4").want(404)
	s.do("POST", "/api/plugin/ready", nil, "X-Prexor-Sequence", "9").want(401) // the caller is a user, not an instance
	s.as("other").do("POST", "/api/plugin/ready", nil, "X-Prexor-Sequence", "9").want(401)
	a.mu.Lock()
	beats := slices.Clone(a.beats)
	a.mu.Unlock()
	if len(beats) != 3 || beats[0].State != "ONLINE" || beats[1].State != "" || *beats[1].Players != 4 || *beats[1].TPS != 18.5 || beats[2].Players != nil {
		t.Errorf("beats %+v", beats)
	}
	s.status(one, "node-1", fleet.Status{State: fleet.Stopped, TokenHash: hash})
	call("/api/plugin/ready", nil, "5").want(401)
	call("/api/plugin/auth/refresh", nil, "6").want(401)
}

func TestACommandGoesOverTheRemoteConsoleWhereThereIsOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", map[string]any{
		"additionalPorts": []map[string]any{{"name": "admin", "port": 7000}}, "rcon": map[string]any{"port": "admin", "password": "x"},
	})
	s.group("plain", nil)
	a := s.node("node-1", fleet.Resources{MemoryMiB: 8192})
	for _, g := range []string{"lobby", "plain"} {
		s.status(s.start(g), "node-1", fleet.Status{State: fleet.Online})
	}
	send := func(ref, body string) *reply { return s.do("POST", "/api/v1/services/"+ref+"/command", body) }
	send("lobby-1", `{"command":"list"}`).want(200).is("status", "sent").is("via", "rcon").is("answer", "you said list").is("incomplete", false)
	send("lobby-1", `{"command":"stop","via":"console"}`).want(200).is("via", "console").is("answer", nil)
	send("plain-1", `{"command":"list"}`).want(200).is("via", "console")
	send("lobby-1", `{"command":"list","via":"pigeon"}`).want(422).naming("via")
	send("lobby-1", `{"command":"a\nb"}`).want(422).naming("command")
	s.do("POST", "/api/instances/lobby-1/execute", `{"command":"seed"}`).want(200).is("answer", "you said seed").is("incomplete", true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.remote, []string{"list", "seed"}) || !slices.Equal(a.typed, []string{"stop", "list"}) {
		t.Errorf("remote %q, typed %q", a.remote, a.typed)
	}
}

func TestTemplatesAndTheirVersions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.template("base")
	s.template("g/n")
	s.do("GET", "/api/v1/templates", nil).want(200).is("total", 2)
	s.do("GET", "/api/v1/templates/base", nil).want(200).is("name", "base").is("hash", "d1").is("sizeBytes", 12)
	s.do("GET", "/api/v1/templates/g%2Fn", nil).want(200).is("name", "g/n").is("group", "g")
	if r := s.do("GET", "/api/v1/templates/g%2Fn/versions", nil).want(200); !strings.HasPrefix(r.raw, "[") || !strings.Contains(r.raw, `"current":true`) {
		t.Errorf("versions %s", r.raw)
	}
	s.do("GET", "/api/v1/templates/nope", nil).want(404)
	s.do("GET", "/api/v1/templates/nope/versions", nil).want(404)
	s.do("POST", "/api/v1/templates/nope/rollback", nil).want(404)
	s.do("POST", "/api/v1/templates/base/rollback", nil).want(503).naming("template service")
	s.do("POST", "/api/v1/templates/base/rollback", `{"hush":"x"}`).want(400).naming("hush")
}

func TestEveryMutationIsInTheAuditOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":5}`).want(200)
	s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":5}`).want(200) // changes nothing
	s.start("lobby")
	s.do("POST", "/api/v1/services/lobby-1/stop", nil).want(200)
	s.do("POST", "/api/v1/services/lobby-1/stop", nil).want(200) // changes nothing
	s.do("DELETE", "/api/v1/services/lobby-1", nil).want(204)
	s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200)
	s.do("POST", "/api/v1/groups/lobby/scale", `{"targetInstances":0}`).want(200)
	s.do("PUT", "/api/configurations/older", `{"command":"x"}`).want(204)
	s.do("DELETE", "/api/v1/groups/lobby", nil).want(204)
	r := s.do("GET", "/api/v1/audit?class=CHANGE", nil).want(200)
	var got []string
	for _, e := range slices.Backward(r.data()) {
		m, _ := e.(map[string]any)
		got = append(got, fmt.Sprint(m["action"]))
		if m["username"] != "admin" || m["ipAddress"] != "127.0.0.1" || m["resourceId"] == "" || m["createdAt"] == "" {
			t.Errorf("entry %v", m)
		}
	}
	want := []string{"group.create", "group.update", "group.start", "instance.stop", "instance.delete", "node.cordon", "group.scale", "group.create", "group.delete"}
	if !slices.Equal(got, want) {
		t.Errorf("audit %v\n want %v", got, want)
	}
}

func TestEventsNeedATicketOrAToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.do("POST", "/api/v1/events/ticket", nil).want(200)
	if r.field("ticket") == nil {
		t.Errorf("ticket %s", r.raw)
	}
	s.as("").do("POST", "/api/v1/events/ticket", nil).want(401)
	s.as("").do("GET", "/api/v1/events/stream", nil).want(401)
	s.as("").do("GET", "/api/v1/events/stream?ticket=nonsense", nil).want(401)
}

func TestAStaticGroupStartsItsOwnInstancesAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("world", map[string]any{"static": true, "staticInstanceNames": []string{"a", "b"}})
	first := s.start("world")
	s.do("GET", "/api/v1/services/a", nil).want(200).is("uid", first)
	s.do("POST", "/api/v1/services/a/stop", nil).want(200)
	if again := s.start("world"); again != first {
		t.Errorf("started %s instead of %s, whose data waits", again, first)
	}
	s.start("world")
	s.do("POST", "/api/v1/groups/world/start", nil).want(409)
}

func TestListsShowOneInstanceOfANameAndNoneThatEndedMoreThanAMinuteAgo(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	s := newSite(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	shows := func(query string, want ...fleet.InstanceID) {
		t.Helper()
		for _, path := range []string{"/api/v1/services", "/api/v1/instances"} {
			r := s.do("GET", path+query, nil).want(200).is("total", len(want))
			for n, id := range want {
				r.is(fmt.Sprintf("data.%d.uid", n), id).is(fmt.Sprintf("data.%d.id", n), "lobby-1")
			}
		}
	}
	first := s.start("lobby")
	s.status(first, "node-1", fleet.Status{State: fleet.Stopped})
	shows("", first)
	second := s.start("lobby")
	s.status(second, "node-1", fleet.Status{State: fleet.Online})
	shows("", second)
	shows("?state=STOPPED")
	shows("?all=true", second, first)
	shows("?all=true&state=STOPPED", first)
	s.do("GET", "/api/v1/services?group=lobby", nil, stock...).want(200).is("0.uid", second).is("1", nil)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("instances.0.uid", second).is("instances.1", nil)
	s.do("GET", "/api/v1/services/lobby-1", nil).want(200).is("uid", second).is("state", "RUNNING")
	s.do("GET", "/api/v1/services/"+string(first), nil).want(200).is("id", "lobby-1").is("state", "STOPPED")

	s.status(second, "node-1", fleet.Status{State: fleet.Crashed})
	shows("", second)
	ahead.Store(int64(61 * time.Second))
	shows("")
	shows("?all=true", second, first)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("instances.0", nil)
	s.do("GET", "/api/v1/services/"+string(second), nil).want(200).is("state", "CRASHED")
	s.do("GET", "/api/v1/services/lobby-1", nil).want(200).is("uid", second)
	s.do("POST", "/api/v1/services/lobby-1/freeze", nil).want(200)
	shows("", second)
	s.do("POST", "/api/v1/services/lobby-1/unfreeze", nil).want(200)
	shows("")
}

func TestListsShowAnInstanceForAMinuteAfterItsEndWhateverItsNodesClockSays(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	s := newSite(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	shown := func(want int) {
		t.Helper()
		s.do("GET", "/api/v1/services", nil).want(200).is("total", want)
	}
	for name, wrong := range map[string]time.Duration{"ahead": 24 * time.Hour, "behind": -5 * time.Minute} {
		s.group(name, nil)
		id := s.start(name)
		s.status(id, "node-1", fleet.Status{State: fleet.Online})
		ahead.Add(int64(10 * time.Minute)) // the node's clock may be wrong by up to the instance's age
		i, _ := s.view.Snapshot().Instances.Get(id)
		ended := *i.Status
		ended.State, ended.ChangedAt = fleet.Crashed, time.Now().Add(time.Duration(ahead.Load())+wrong)
		s.commit(store.Replace(keys.Status(id), ended, ended.ModRev))
		shown(1)
		ahead.Add(int64(59 * time.Second))
		shown(1)
		ahead.Add(int64(2 * time.Second))
		shown(0)
	}
	ahead.Store(int64(2 * time.Hour)) // a new gateway has seen neither end
	other := newSiteOn(t, s.etcd, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	other.token = other.login("admin", adminPassword)
	other.do("GET", "/api/v1/services", nil).want(200).is("total", 1).is("data.0.group", "ahead")
	ahead.Add(int64(61 * time.Second))
	other.do("GET", "/api/v1/services", nil).want(200).is("total", 0)
}
