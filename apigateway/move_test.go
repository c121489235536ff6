package apigateway

import (
	"context"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/scheduler/client"
)

func TestAStaticInstanceIsMovedAndItsMoveCancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	a := s.scheduler("world")
	a.simulation = client.Simulation{Instances: []client.Outcome{{Node: "node-2", Effect: client.EffectPlaced}}}
	s.group("world", map[string]any{"static": true, "command": "x"})
	s.group("lobby", nil)
	world, lobby := s.start("world"), s.start("lobby")
	for _, id := range []fleet.InstanceID{world, lobby} {
		s.status(id, "node-1", fleet.Status{State: fleet.Online})
	}
	at := "/api/v1/instances/world-1"

	before := s.revision()
	s.do("GET", at+"/move", nil).want(404)
	s.do("DELETE", at+"/move", nil).want(404)
	s.do("POST", "/api/v1/instances/none-1/move", nil).want(404)
	s.do("POST", "/api/v1/instances/lobby-1/move", nil).want(409).naming("not static")
	s.do("POST", at+"/move", `{"node":"node-1"}`).want(422).naming("node")
	s.do("POST", at+"/move", `{"node":"nope"}`).want(422).naming("node")
	s.do("POST", at+"/move", `{"deadlineSeconds":-1}`).want(422).naming("deadlineSeconds")
	s.do("POST", at+"/move", `{"message":"a\u0007"}`).want(422).naming("message")
	s.do("POST", at+"/move", `{"target":"node-2"}`).want(400).naming("target")
	s.do("POST", at+"/move?dryRun=true", nil).want(200).is("dryRun", true).is("to", "node-2").is("from", "node-1").naming("node node-2 copies its directory")
	if changed := s.moved(before); len(changed) > 0 {
		t.Errorf("refused requests wrote %v", changed)
	}

	s.do("POST", at+"/move", `{"node":"node-2","message":"new disk","deadlineSeconds":0}`).want(200).is("status", "moving").is("move.step", "STOPPING").is("move.note", "new disk")
	s.do("GET", at+"/move", nil).want(200).is("to", "node-2").is("requestedBy", "admin")
	s.do("GET", at, nil).want(200).is("move.step", "STOPPING")
	s.do("GET", at+"/explain", nil).want(200).naming(`"moves"`)
	for _, refused := range []string{"/move", "/freeze", "/restart"} {
		s.do("POST", at+refused, nil).want(409).naming("node-2")
	}
	s.do("DELETE", at+"/move?dryRun=true", nil).want(200).is("dryRun", true)
	s.do("DELETE", at+"/move", nil).want(200).is("status", "cancelling").is("move.cancelledBy", "admin")
	if m, err := store.Get(context.Background(), s.store, keys.Move(world)); err != nil || m.CancelBy != "admin" {
		t.Errorf("the record is %+v: %v", m, err)
	}
	audit := s.do("GET", "/api/v1/audit?pageSize=5", nil).want(200)
	audit.naming("instance.move.cancel").naming("instance.move")

	m, _ := s.view.Snapshot().Move(world)
	over := *m
	over.Step, over.Reason, over.Detail = move.Failed, fleet.ReasonDiskFull, "the disk of node-2 is full"
	s.commit(store.Replace(keys.Move(world), over, m.ModRev))
	s.do("GET", at+"/move", nil).want(200).is("step", "FAILED").is("reason", "DiskFull")
	s.do("DELETE", at+"/move", nil).want(409).naming("is over")
	a.simulation = client.Simulation{Instances: []client.Outcome{{Effect: client.EffectPending}}, Unfit: []client.Waiting{{Unfit: client.Unfit{Message: "node-2 lacks memory"}}}}
	s.do("POST", at+"/move", `{"node":"node-2"}`).want(409).naming("lacks memory")
	s.do("POST", "/api/v1/nodes/node-2/cordon", nil).want(200)
	s.do("POST", at+"/move", `{"node":"node-2"}`).want(409).naming("cordoned")
	s.do("POST", at+"/freeze", nil).want(200)
	s.do("POST", at+"/move", nil).want(409).naming("frozen")
}
