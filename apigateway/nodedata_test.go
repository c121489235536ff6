package apigateway

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// static creates a group of static instances with one that ran on a node and has stopped.
func (s *site) static(group fleet.GroupName, node fleet.NodeID, fields map[string]any) fleet.InstanceID {
	s.t.Helper()
	spec := map[string]any{"name": group, "static": true, "command": "x"}
	for k, v := range fields {
		spec[k] = v
	}
	s.do("POST", "/api/v1/groups", spec).want(201)
	id := s.start(string(group))
	s.status(id, node, fleet.Status{State: fleet.Stopped})
	s.do("POST", "/api/v1/services/"+string(id)+"/stop", nil).want(200)
	return id
}

func TestANodeWithDataIsDeletedOnlyWhenItsDataIsDiscarded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	known := s.static("survival", "node-1", nil)
	s.static("creative", "node-1", nil)
	s.static("shared", "node-1", map[string]any{"onNodeLoss": "replace"})
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", At: time.Now(), StaticBytes: map[string]int64{
		"survival/survival-1": 3 << 30, "gone/gone-7": 5 << 20, "shared/shared-1": 1 << 20,
	}}))
	s.do("DELETE", "/api/v1/nodes/node-1?dryRun=true", nil).want(409).naming("connected")
	s.loseNode("node-1")
	s.loseNode("node-2")

	before := s.revision()
	s.do("DELETE", "/api/v1/nodes/node-1", nil).want(409).naming("node-1").naming("survival-1 (3.0 GiB)").naming("creative-1 (size unknown)").naming("gone-7 (5.0 MiB)").naming("discardData=true")
	s.do("DELETE", "/api/v1/nodes/node-1?discardData=yes", nil).want(400).naming("discardData")
	s.do("DELETE", "/api/v1/nodes/node-1?dryRun=true&discardData=true", nil).want(200).is("needsDiscardData", true)
	s.do("DELETE", "/api/v1/nodes/node-1?dryRun=true", nil).want(200).is("action", "delete").is("needsDiscardData", true).
		is("data.0.name", "creative-1").is("data.0.bytes", nil).
		is("data.1.name", "gone-7").is("data.1.group", "gone").is("data.1.bytes", 5<<20).
		is("data.2.name", "survival-1").is("data.2.uid", known).is("data.2.bytes", 3<<30).is("data.3", nil)
	s.do("DELETE", "/api/v1/nodes/node-2?dryRun=true", nil).want(200).is("needsDiscardData", false).is("data", []any{})
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused deletion or a dry run wrote something: %v", keys)
	}
	s.do("DELETE", "/api/v1/nodes/node-2", nil).want(204)
	s.do("DELETE", "/api/v1/nodes/node-1?discardData=true", nil).want(204)
}

func TestAnInstanceStartsWithoutItsDataOnlyOnceThatIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.static("survival", "node-1", nil)
	start := "/api/v1/services/" + string(id) + "/start"
	s.do("POST", start+"?discardData=true", nil).want(409).naming("is on node node-1")
	s.do("POST", "/api/v1/groups", map[string]any{"name": "lobby", "command": "x"}).want(201)
	other := s.start("lobby")
	s.do("POST", "/api/v1/services/"+string(other)+"/start?discardData=true", nil).want(409).naming("never been on a node")
	s.status(other, "node-1", fleet.Status{State: fleet.Online})
	s.do("POST", "/api/v1/services/"+string(other)+"/start?discardData=true", nil).want(409).naming("is not static")

	s.loseNode("node-1")
	n, err := store.Get(t.Context(), s.store, keys.Node("node-1"))
	if err != nil {
		t.Fatal(err)
	}
	s.commit(store.Remove(keys.Node("node-1"), n.ModRev)) // as the enforcer does
	s.do("POST", start, nil).want(200).is("changed", true)
	s.do("POST", start+"?discardData=true", nil).want(200).is("changed", true)
	s.auditsDiscard()
	s.do("POST", start+"?discardData=true", nil).want(200).is("changed", false)
	in, err := store.Get(t.Context(), s.store, keys.Intent(id))
	if err != nil || in.DiscardsData != 1 || in.Generation != 2 || in.Desired != fleet.DesiredRunning {
		t.Errorf("the intent is %+v, %v", in, err)
	}
}

func TestTheAuditSaysThatAStoppedInstanceStartsWithoutItsData(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.static("survival", "node-1", nil)
	s.loseNode("node-1")
	n, err := store.Get(t.Context(), s.store, keys.Node("node-1"))
	if err != nil {
		t.Fatal(err)
	}
	s.commit(store.Remove(keys.Node("node-1"), n.ModRev))
	s.do("POST", "/api/v1/services/"+string(id)+"/start?discardData=true", nil).want(200).is("changed", true)
	s.auditsDiscard()
}

// auditsDiscard checks that the last audited start of an instance discards the data of generation 1.
func (s *site) auditsDiscard() {
	s.t.Helper()
	r := s.do("GET", "/api/v1/audit?limit=1&action=instance.start", nil).want(200)
	r.is("data.0.before.discardsData", nil).is("data.0.after.discardsData", 1)
}

func TestTheDataOfAMovedInstanceIsOnItsNewNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.node("node-2", fleet.Resources{MemoryMiB: 4096})
	id := s.static("survival", "node-1", nil)
	s.edit(id, func(next *fleet.Intent) { next.MovesTo = &fleet.DataCopy{Node: "node-2", Generation: next.Generation} })
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", At: time.Now(), StaticBytes: map[string]int64{"survival/survival-1": 1 << 20}}))
	s.loseNode("node-1")
	s.loseNode("node-2")
	s.do("DELETE", "/api/v1/nodes/node-1?dryRun=true", nil).want(200).is("needsDiscardData", false).is("data", []any{})
	s.do("DELETE", "/api/v1/nodes/node-2?dryRun=true", nil).want(200).is("needsDiscardData", true).is("data.0.uid", id)
	s.do("DELETE", "/api/v1/nodes/node-2", nil).want(409).naming("survival-1 (size unknown)")
}
