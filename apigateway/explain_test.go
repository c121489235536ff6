package apigateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/scheduler/client"
)

// asked is a fake scheduler that owns all shards of some groups and returns what the test sets.
type asked struct {
	*httptest.Server
	calls       atomic.Int32
	explanation client.Explanation
	simulation  client.Simulation
	fails       error
	// question is the last simulation request.
	question atomic.Pointer[client.Question]
	busy     bool
}

// scheduler registers a scheduler that owns a group's shard.
func (s *site) scheduler(group fleet.GroupName) *asked {
	s.t.Helper()
	a := &asked{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.calls.Add(1)
		switch {
		case r.Header.Get("Authorization") != "Bearer "+secret:
			wire.Encode(w, wire.Internal, "", errs.New(errs.Unauthenticated, "who are you"))
		case a.busy:
			wire.Write(w, wire.Internal, wire.Reply{Status: 429, Code: "RATE_LIMITED", Kind: errs.Exhausted, Message: "enough for now", RetryAfter: time.Second})
		case a.fails != nil:
			wire.Encode(w, wire.Internal, "", a.fails)
		case strings.HasSuffix(r.URL.Path, "/explain"):
			_ = json.NewEncoder(w).Encode(a.explanation)
		default:
			var q client.Question
			_ = json.NewDecoder(r.Body).Decode(&q)
			a.question.Store(&q)
			_ = json.NewEncoder(w).Encode(a.simulation)
		}
	}))
	s.t.Cleanup(a.Close)
	s.commit(
		store.Create(keys.Session("scheduler", "s1"), cluster.Session{Service: "scheduler", Replica: "s1", URL: a.URL}),
		store.Create(keys.Shard("scheduler", fleet.ShardOf(group)), cluster.Shard{Service: "scheduler", Replica: "s1"}))
	return a
}

// note stores the reason why an instance waits, as a scheduler does.
func (s *site) note(id fleet.InstanceID) {
	s.t.Helper()
	s.commit(store.Create(keys.Pending(id), fleet.Pending{
		Instance: id, Generation: 1, Reason: fleet.ReasonNoNodeFits, Message: "0 of 3 nodes can take it",
		Nodes: 3, Lost: []fleet.FilterLoss{{Filter: "memory", Nodes: 3, Fix: "add memory"}}, At: time.Now(), FromRevision: 42,
	}))
}

func TestAWaitingInstanceIsExplainedByItsScheduler(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	id := s.start("lobby")
	s.note(id)
	a := s.scheduler("lobby")
	a.explanation = client.Explanation{
		Revision: 99, Instance: id, Generation: 1, Nodes: 4, Lost: []fleet.FilterLoss{{Filter: "cpu", Nodes: 4, Fix: "add CPU"}},
		Unfit: &client.Unfit{Reason: fleet.ReasonNoNodeFits, Message: "0 of 4 nodes can take it"},
	}
	for _, path := range []string{"/api/v1/instances/lobby-1/explain", "/api/v1/services/" + string(id) + "/explain"} {
		r := s.do("GET", path, nil).want(200)
		r.is("state", "SCHEDULED").is("pending.source", "live").is("pending.scheduler", "s1").is("pending.revision", 99).
			is("pending.nodes", 4).is("pending.message", "0 of 4 nodes can take it").is("pending.note", nil).is("placement", nil)
		chain, _ := r.field("chain").([]any)
		if len(chain) != 2 || chain[0].(map[string]any)["step"] != "wanted" || chain[0].(map[string]any)["by"] != "admin" ||
			chain[1].(map[string]any)["step"] != "waits" || chain[1].(map[string]any)["message"] != "0 of 3 nodes can take it" {
			t.Errorf("chain %v", chain)
		}
	}
	a.explanation.Unfit, a.explanation.Best = nil, []client.Candidate{{Node: "n1", Rank: 1}}
	s.do("GET", "/api/v1/instances/lobby-1/explain", nil).want(200).is("pending.reason", "Unscheduled").naming("has not reached it").naming(`"n1"`)
}

func TestExplainNamesPendingEvictions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("low", nil)
	s.group("vip", nil)
	victim, id := s.start("low"), s.start("vip")
	s.note(id)
	s.commit(store.Create(keys.Eviction(victim), fleet.Eviction{
		Instance: victim, Generation: 1, Node: "n1", Reason: fleet.ReasonPreempted, For: id, At: time.Now(),
	}))
	r := s.do("GET", "/api/v1/instances/vip-1/explain", nil).want(200)
	chain, _ := r.field("chain").([]any)
	if len(chain) != 3 {
		t.Fatalf("chain %v", chain)
	}
	room := chain[2].(map[string]any)
	if room["step"] != "room" || room["reason"] != "Preempted" || room["instance"] != string(victim) || room["node"] != "n1" ||
		room["message"] != "low-1 is evicted for it on n1: it starts when that instance has stopped" {
		t.Errorf("step %v", room)
	}
}

func TestExplainWithoutSchedulerShowsStoredReason(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.note(s.start("lobby"))
	stored := func(why string) {
		t.Helper()
		s.do("GET", "/api/v1/instances/lobby-1/explain", nil).want(200).is("pending.source", "stored").is("pending.revision", 42).
			is("pending.nodes", 3).is("pending.reason", "NoNodeFits").naming("its last record").naming(why).naming("add memory")
	}
	stored("no scheduler decides")
	a := s.scheduler("lobby")
	a.busy = true
	stored("enough for now")
	a.busy, a.fails = false, errs.New(errs.Internal, "broken")
	for range 10 {
		stored("did not answer")
	}
	if n := a.calls.Load(); n > 6 {
		t.Errorf("one that fails was asked %d times", n)
	}
}

func TestAPlacedInstanceIsExplainedWithOrWithoutItsScheduler(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 400})
	s.group("lobby", nil)
	id := s.start("lobby")
	s.status(id, "node-1", fleet.Status{State: fleet.Online, Reason: fleet.ReasonReady, PID: 1})
	s.do("GET", "/api/v1/instances/lobby-1/explain", nil).want(200).is("placement.node", "node-1").is("placement.now", nil).is("pending", nil)
	a := s.scheduler("lobby")
	a.explanation = client.Explanation{
		Revision: 99, Instance: id, Generation: 1, Nodes: 2,
		Best: []client.Candidate{{Node: "node-2", Rank: 1, Score: map[string]float64{"total": 0.9}}},
		Here: &client.Candidate{Node: "node-1", Filter: "cordon", Fix: "uncordon node-1"},
	}
	s.do("GET", "/api/v1/instances/lobby-1/explain", nil).want(200).is("placement.now.source", "live").is("placement.now.here.fix", "uncordon node-1").
		is("placement.now.revision", 99).naming("node-2")
}

func TestAStopSaysWhoAndByWhichRule(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 400})
	s.group("lobby", nil)
	id := s.start("lobby")
	s.status(id, "node-1", fleet.Status{State: fleet.Online, Reason: fleet.ReasonReady, PID: 1})
	s.do("POST", "/api/v1/services/lobby-1/stop", nil).want(200)
	s.status(id, "node-1", fleet.Status{State: fleet.Stopped, Reason: fleet.ReasonStopRequested, Exit: &fleet.Exit{Known: true}})
	r := s.do("GET", "/api/v1/instances/lobby-1/explain", nil).want(200).is("state", "STOPPED").is("pending", nil)
	chain, _ := r.field("chain").([]any)
	var steps []string
	last := 0.0
	for _, l := range chain {
		m := l.(map[string]any)
		steps = append(steps, m["step"].(string))
		rev := m["revision"].(float64)
		if rev < last {
			t.Errorf("%v does not follow revision %v", m, last)
		}
		last = rev
		if m["step"] == "stop" && (m["by"] != "admin" || m["reason"] != "StopRequested") {
			t.Errorf("stop %v", m)
		}
	}
	if got := strings.Join(steps, " "); got != "wanted placed stop state" {
		t.Errorf("steps %s", got)
	}
	s.do("GET", "/api/v1/instances/nope-1/explain", nil).want(404)
}

func TestSimulationFallsBackToAnotherScheduler(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.scheduler("lobby")
	a.simulation = client.Simulation{Revision: 7}
	for _, gone := range []string{"gone-1", "gone-2", "gone-3"} {
		s.commit(store.Create(keys.Session("scheduler", gone), cluster.Session{Service: "scheduler", Replica: gone, URL: "http://127.0.0.1:1/" + gone}))
	}
	for range 8 {
		s.do("POST", "/api/v1/simulate", `{"drain":{"node":"n1"}}`).want(200).is("scheduler", "s1")
	}
}

func TestSimulationsPassThroughAndBadOnesDoNot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.scheduler("lobby")
	a.simulation = client.Simulation{Revision: 7, Placed: 1, Instances: []client.Outcome{{Name: "lobby-1", Group: "lobby", Effect: client.EffectPlaced, Node: "n1", Port: 30000}}}
	before := s.revision()
	for _, body := range []string{`{"place":{"group":"lobby","count":1}}`, `{"drain":{"node":"n1"}}`, `{"lose":{"node":"n1"}}`} {
		s.do("POST", "/api/v1/simulate", body).want(200).is("revision", 7).is("placed", 1).is("scheduler", "s1").naming(`"port":30000`)
	}
	calls := a.calls.Load()
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":10001}}`).want(422).naming("place.count")
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":0}}`).want(422).naming("place.count")
	s.do("POST", "/api/v1/simulate", `{"place":{"count":1}}`).want(422).naming("place.group")
	s.do("POST", "/api/v1/simulate", `{"drain":{}}`).want(422).naming("drain.node")
	s.do("POST", "/api/v1/simulate", `{"drain":{"node":"a"},"lose":{"node":"a"}}`).want(422).naming("at a time")
	s.do("POST", "/api/v1/simulate", `{}`).want(422)
	s.do("POST", "/api/v1/simulate", `{"move":1}`).want(400).naming("move")
	s.do("POST", "/api/v1/simulate", nil).want(400)
	s.do("POST", "/api/v1/simulate", `{"place":`).want(400).naming("JSON")
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":1000000}}`).want(422).naming("place.count")
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":-1}}`).want(422).naming("place.count")
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":1e30}}`).want(400).naming("place.count")
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":1,"node":"n1"}}`).want(400).naming("place.node is not")
	s.do("POST", "/api/v1/simulate", `{"lose":{"node":"a"},"lose":{"node":"b"}}`).want(400).naming("lose is given twice")
	s.do("POST", "/api/v1/simulate", `{"drain":"n1"}`).want(400).naming("drain must be")
	if a.calls.Load() != calls {
		t.Error("a question that cannot be asked reached the scheduler")
	}
	a.fails = errs.New(errs.NotFound, "there is no group lobby")
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":1}}`).want(404).naming("lobby")
	a.fails = errs.New(errs.Conflict, "the answer takes too long: ask for fewer")
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"lobby","count":1}}`).want(409).naming("ask for fewer")
	a.fails, a.busy = nil, true
	if r := s.do("POST", "/api/v1/simulate", `{"lose":{"node":"n1"}}`).want(429); r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	a.Close()
	if r := s.do("POST", "/api/v1/simulate", `{"lose":{"node":"n1"}}`).want(503); r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.do("POST", "/api/v1/simulate", `{"place":{"group":"another","count":1}}`).want(503).naming("no scheduler decides")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a question wrote something: %v", keys)
	}
	s.as("").do("POST", "/api/v1/simulate", `{}`).want(401)
}
