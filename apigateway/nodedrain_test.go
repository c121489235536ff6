package apigateway

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
	simulated "github.com/orreryhq/orrery/scheduler/client"
)

// stopFor reports the end of an instance that the enforcer stopped.
func (s *site) stopFor(id fleet.InstanceID, why fleet.Reason) {
	s.t.Helper()
	i, _ := s.view.Snapshot().Instances.Get(id)
	next := i.Intent
	next.Desired, next.Stop = fleet.DesiredStopped, &fleet.StopRequest{At: time.Now(), Reason: why}
	s.commit(store.Replace(keys.Intent(id), next, i.Intent.ModRev))
	s.status(id, i.Node(), fleet.Status{State: fleet.Stopped, Reason: why})
}

// drains waits until the drain of node-1 has a state.
func (s *site) drains(state string) *reply {
	s.t.Helper()
	var last *reply
	await.That(s.t, "a drain that is "+state, func() string {
		last = s.do("GET", "/api/v1/nodes/node-1", nil).want(200)
		return await.Unless(last.field("drain.state") == state, "it is %s", last.raw)
	})
	return last
}

func TestADryRunOfADrainNamesReplacementsWithoutRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"minInstances": 1})
	s.status(s.start("lobby"), "node-1", fleet.Status{State: fleet.Online})
	const ask = "/api/v1/nodes/node-1/drain?shutdown=false&dryRun=true"
	s.do("POST", ask, nil).want(200).is("instances.0.action", "WAIT").naming("cannot predict where the replacements would run")
	a := s.scheduler("lobby")
	a.simulation = simulated.Simulation{Instances: []simulated.Outcome{{Name: "lobby-2", Replaces: "lobby-1", Effect: simulated.EffectPlaced, Node: "node-2"}}}
	s.do("POST", ask, nil).want(200).is("instances.0.unplaced", nil).is("notes", []any{}).naming("starts on another node")
	a.simulation.Instances[0] = simulated.Outcome{Name: "lobby-2", Replaces: "lobby-1", Effect: simulated.EffectPending, Message: "no other node has joined"}
	s.do("POST", ask, nil).want(200).is("instances.0.unplaced", true).naming("no other node takes its replacement now: no other node has joined. Later its players are moved")
}

func TestADrainIsShownUntilItIsComplete(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", map[string]any{"minInstances": 1})
	s.group("world", map[string]any{"static": true, "command": "x"})
	lobby, frozen, world := s.start("lobby"), s.start("lobby"), s.start("world")
	for _, id := range []fleet.InstanceID{lobby, frozen, world} {
		s.status(id, "node-1", fleet.Status{State: fleet.Online})
	}
	s.do("POST", "/api/v1/services/"+string(frozen)+"/freeze", nil).want(200)
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", At: time.Now(), Instances: map[fleet.InstanceID]reports.InstanceReport{lobby: {Players: 3}}}))

	before := s.revision()
	const ask = "/api/v1/nodes/node-1/drain?shutdown=false&timeout=600&kickMessage=see%20you"
	check := func(at string, r *reply) {
		t.Helper()
		r.is(at+"remainingInstances", 3).is(at+"players", 3).
			is(at+"instances.0.id", "world-1").is(at+"instances.0.action", "RETIRE").is(at+"instances.0.reason", "NodeDrained").
			is(at+"instances.1.id", "lobby-1").is(at+"instances.1.action", "RETIRE").is(at+"instances.1.players", 3).
			is(at+"instances.2.id", "lobby-2").is(at+"instances.2.action", "BLOCK").is(at+"instances.2.blocks", true)
	}
	check("", s.do("POST", ask+"&dryRun=true", nil).want(200).is("dryRun", true).is("shutdown", false).is("drainTimeoutSeconds", 600))
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a dry run wrote %v", keys)
	}
	first := s.do("POST", ask, nil).want(200).is("status", "DRAINING").is("changed", true).is("shutdown", false).is("drainTimeoutSeconds", 600).is("kickMessage", "see you")
	check("", first)
	if a, err := store.Get(t.Context(), s.store, keys.Alloc("node-1")); err != nil || a.ModRev <= before {
		t.Errorf("a placement decided before the drain could still be committed: %+v, %v", a, err)
	}
	before = s.revision()
	s.do("POST", ask, nil).want(200).is("changed", false).is("drainId", first.field("drainId"))
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(409).naming("undrain")
	s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a repetition wrote %v", keys)
	}
	r := s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "DRAINING").is("cordoned", true).is("drain.state", "DRAINING").is("drain.requestedBy", "admin").is("drain.completedAt", nil).is("drain.kickMessage", "see you")
	check("drain.", r)
	s.do("GET", "/api/v1/nodes?state=draining", nil).want(200).is("total", 1)
	if m := s.do("GET", "/api/metrics", nil).want(200).raw; !strings.Contains(m, "orrery_apigateway_draining_nodes 1\n") {
		t.Errorf("the metrics do not count the drain")
	}

	s.stopFor(lobby, fleet.ReasonNodeDrained)
	s.stopFor(world, fleet.ReasonNodeDrained)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("drain.state", "DRAINING").is("drain.remainingInstances", 1).is("drain.stopped", []any{"world-1"})
	s.stopFor(frozen, fleet.ReasonStopRequested)
	s.drains("COMPLETED").is("status", "CORDONED").is("cordoned", true).is("drain.remainingInstances", 0)
	s.do("POST", "/api/v1/nodes/node-1/undrain?dryRun=true", nil).want(200).is("start", []any{"world-1"}).is("stay", []any{})
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "CORDONED")
	s.do("POST", "/api/v1/nodes/node-1/undrain", nil).want(200).is("status", "ONLINE").is("changed", true).is("start", []any{"world-1"})
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "ONLINE").is("drain", nil)
	before = s.revision()
	s.do("POST", "/api/v1/nodes/node-1/undrain", nil).want(200).is("status", "ONLINE").is("changed", false)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("undraining a free node wrote %v", keys)
	}
	var actions []string
	for _, a := range s.told() {
		if strings.HasPrefix(a, "node.") {
			actions = append(actions, strings.Fields(a)[0])
		}
	}
	if want := []string{"node.drain", "node.drain.complete", "node.undrain"}; !slices.Equal(actions, want) {
		t.Errorf("audited %v, want %v", actions, want)
	}
}

func TestADrainShutsTheAgentDown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	asked := make(chan client.Shutdown, 10)
	agent.mu.Lock()
	agent.more = func(w http.ResponseWriter, r *http.Request) {
		var b client.Shutdown
		if r.Method+r.URL.Path != "POST/v1/shutdown" || json.NewDecoder(r.Body).Decode(&b) != nil {
			http.NotFound(w, r)
			return
		}
		asked <- b
		w.WriteHeader(http.StatusNoContent)
	}
	agent.mu.Unlock()
	s.group("lobby", nil)
	id := s.start("lobby")
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	s.do("POST", "/api/v1/nodes/node-1/drain", nil).want(200).is("shutdown", true).is("drainTimeoutSeconds", 60).is("kickMessage", "")
	s.do("POST", "/api/v1/nodes/node-1/drain", `{"timeout":90}`).want(200).is("drainTimeoutSeconds", 90)
	if len(asked) > 0 {
		t.Error("the agent is shut down while an instance is left")
	}
	s.stopFor(id, fleet.ReasonNodeDrained)
	s.drains("COMPLETED")
	if got := <-asked; got.Node != "node-1" || got.Reason != "drained by admin" {
		t.Errorf("asked %+v", got)
	}
	// The node comes back cordoned, and is not shut down again.
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "ONLINE").is("drain", nil)
	s.loseNode("node-1")
	s.do("POST", "/api/v1/nodes/node-1/drain", nil).want(200)
	s.drains("COMPLETED").is("status", "OFFLINE")
	if len(asked) > 0 {
		t.Error("an agent that is gone is asked")
	}
}

func TestADrainIsRefusedWithoutAChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	s.loseNode("node-2")
	s.do("DELETE", "/api/v1/nodes/node-2", nil).want(204)
	s.do("POST", "/api/v1/nodes/node-1/revoke-cert", `{}`).want(200)
	before := s.revision()
	s.do("POST", "/api/v1/nodes/none/drain", nil).want(404)
	s.do("POST", "/api/v1/nodes/none/undrain", nil).want(404)
	s.do("POST", "/api/v1/nodes/node-2/drain", nil).want(409).naming("being deleted")
	for query, names := range map[string]string{"timeout=soon": "timeout", "shutdown=maybe": "shutdown"} {
		s.do("POST", "/api/v1/nodes/node-1/drain?"+query, nil).want(400).naming(names)
	}
	for query, names := range map[string]string{
		"timeout=0": "timeout", "timeout=-1": "timeout", "timeout=86401": "timeout", "kickMessage=a%0Ab": "kickMessage", "kickMessage=" + strings.Repeat("x", 201): "kickMessage",
	} {
		s.do("POST", "/api/v1/nodes/node-1/drain?"+query, nil).want(422).naming(names)
	}
	s.do("POST", "/api/v1/nodes/node-1/drain", `{"deadline":5}`).want(400).naming("deadline")
	s.do("POST", "/api/v1/nodes/node-1/drain", `{"timeout":"5"}`).want(400).naming("timeout")
	s.do("POST", "/api/v1/nodes/node-1/drain?timeout=5", `{"timeout":6}`).want(400).naming("timeout")
	s.do("POST", "/api/v1/nodes/node-1/undrain", nil).want(409).naming("unrevoke it first")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("refused requests wrote %v", keys)
	}
}

func TestTheLastPlayersAreToldOnce(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	server := a.inside("lobby", "node-1")
	const steve, alex players.PlayerID = "069a79f4-44e9-4726-a5be-fca90e38aaf5", "169a79f4-44e9-4726-a5be-fca90e38aaf5"
	a.publish("node-1", steve, players.Presence{By: server.id, On: server.id})
	a.publish("node-1", alex, players.Presence{By: server.id, On: server.id})
	b := second(t, a)
	a.do("POST", "/api/v1/nodes/node-1/drain?shutdown=false&kickMessage=bye", nil).want(200)
	a.do("GET", "/api/v1/services/lobby-1/explain", nil).want(200).is("chain.3.step", "drain").is("chain.3.reason", "NodeDrained").is("chain.3.by", "admin").is("chain.3.node", "node-1")
	a.stopFor(server.id, fleet.ReasonNodeDrained)
	for _, s := range []*site{a, b} {
		s.drains("COMPLETED")
		await.That(t, "the messages", func() string {
			return await.Unless(s.view.Snapshot().Messages.Len() == 2, "%d", s.view.Snapshot().Messages.Len())
		})
	}
	for _, m := range a.view.Snapshot().Messages.All() {
		if m.Content != "bye" || m.FromName != "Server" || m.To != steve && m.To != alex {
			t.Errorf("told %+v", m)
		}
	}
}

func TestADrainContinuesWithAnotherGateway(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	id := a.start("lobby")
	a.status(id, "node-1", fleet.Status{State: fleet.Online})
	b := second(t, a)
	a.do("POST", "/api/v1/nodes/node-1/drain?shutdown=false", nil).want(200)
	a.stop()
	b.stopFor(id, fleet.ReasonNodeDrained)
	b.drains("COMPLETED").is("status", "CORDONED")
}

// moving waits until the only move of the drain of node-1 has a step.
func (s *site) moving(step string) *reply {
	s.t.Helper()
	var last *reply
	await.That(s.t, "a move that is "+step, func() string {
		last = s.do("GET", "/api/v1/nodes/node-1", nil).want(200)
		return await.Unless(last.field("drain.moves.0.step") == step, "it is %s", last.raw)
	})
	return last
}

func TestADrainMovesStaticInstancesThatHaveEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	a := s.scheduler("world")
	s.group("world", map[string]any{"static": true, "command": "x"})
	world := s.start("world")
	s.status(world, "node-1", fleet.Status{State: fleet.Online})
	a.simulation = simulated.Simulation{Revision: math.MaxInt64, Instances: []simulated.Outcome{{Instance: world, Name: "world-1", Group: "world", Node: "node-2", Effect: simulated.EffectPlaced}}}

	const ask = "/api/v1/nodes/node-1/drain?shutdown=false&moveStatic=true"
	before := s.revision()
	s.do("POST", ask+"&dryRun=true", nil).want(200).is("moveStatic", true).is("instances.0.action", "RETIRE").is("instances.0.move.to", "node-2").naming("node node-2 copies its data")
	if q := a.question.Load(); q.Drain == nil || !q.Drain.MoveStatic {
		t.Errorf("the scheduler was asked %+v", q)
	}
	s.do("POST", "/api/v1/nodes/bulk?dryRun=true", `{"action":"drain","ids":["node-1"],"moveStatic":true}`).want(200).is("data.0.instances.0.move.to", "node-2")
	s.do("POST", "/api/v1/nodes/bulk", `{"action":"cordon","ids":["node-1"],"moveStatic":true}`).want(422).naming("moveStatic")
	s.do("POST", "/api/v1/nodes/node-1/drain?moveStatic=maybe", nil).want(400).naming("moveStatic")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a dry run wrote %v", keys)
	}

	s.do("POST", ask, nil).want(200).is("moveStatic", true)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("drain.moves", []any{})
	s.stopFor(world, fleet.ReasonNodeDrained)
	s.moving("STOPPING").is("drain.state", "DRAINING").is("drain.instances.0.action", "MOVE").is("drain.instances.0.move.to", "node-2").is("drain.moves.0.id", "world-1")
	m, _ := s.view.Snapshot().Move(world)
	over := *m
	over.Step = move.Done
	s.commit(store.Replace(keys.Move(world), over, m.ModRev))
	s.drains("COMPLETED").is("drain.moves.0.step", "DONE").is("drain.moves.0.to", "node-2").is("drain.remainingInstances", 0)
}

func TestADrainEndsAlthoughAStaticInstanceCannotMove(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a := s.scheduler("world")
	s.group("world", map[string]any{"static": true, "command": "x"})
	world := s.start("world")
	s.status(world, "node-1", fleet.Status{State: fleet.Online})
	a.simulation = simulated.Simulation{
		Revision: math.MaxInt64, Instances: []simulated.Outcome{{Instance: world, Name: "world-1", Group: "world", Effect: simulated.EffectPending}},
		Unfit: []simulated.Waiting{{Group: "world", Unfit: simulated.Unfit{Message: "no other node has joined"}}},
	}
	const ask = "/api/v1/nodes/node-1/drain?shutdown=false&moveStatic=true"
	s.do("POST", ask+"&dryRun=true", nil).want(200).is("instances.0.move.to", "").is("instances.0.move.reason", "NoNodeFits").naming("it stays down: no other node can take instance world-1: no other node has joined")
	s.do("POST", ask, nil).want(200)
	s.stopFor(world, fleet.ReasonNodeDrained)
	s.drains("COMPLETED").is("drain.stopped", []any{"world-1"}).is("drain.moves.0.step", "FAILED").is("drain.moves.0.reason", "NoNodeFits").naming("no other node has joined")
	s.do("GET", "/api/v1/instances/world-1/explain", nil).want(200).naming("no other node has joined")
	s.do("POST", "/api/v1/nodes/node-1/undrain?dryRun=true", nil).want(200).is("start", []any{"world-1"})
}
