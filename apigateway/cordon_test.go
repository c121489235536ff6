package apigateway

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestNodesAreListedAndCordoned(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 200, DiskMiB: 9})
	s.node("node-2", fleet.Resources{MemoryMiB: 1})
	s.group("lobby", map[string]any{"memoryMb": 64})
	id := s.start("lobby")
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", CPU: 0.5, MemoryMiB: 99, DiskFreeMiB: 3, At: time.Now()}))
	s.do("GET", "/api/v1/nodes", nil).want(200).is("total", 2)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("id", "node-1").is("nodeId", "node-1").is("status", "ONLINE").is("type", "CONNECTED").
		is("totalMemoryMb", 4096).is("usedMemoryMb", 99).is("cpuUsage", 0.5).is("freeDiskMb", 3).is("instanceCount", 1).is("labels", map[string]string{})
	before := s.revision()
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200).is("status", "ONLINE").is("changed", false)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("uncordoning a free node wrote something: %v", keys)
	}
	s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200).is("status", "CORDONED").is("changed", true)
	if a, err := store.Get(t.Context(), s.store, keys.Alloc("node-1")); err != nil || a.ModRev <= before {
		t.Errorf("a placement decided before the cordon could still be committed: %+v, %v", a, err)
	}
	s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200).is("changed", false)
	s.do("GET", "/api/v1/nodes?state=cordoned", nil).want(200).is("total", 1)
	s.loseNode("node-1")
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("status", "OFFLINE").is("type", "DISCONNECTED").is("cordoned", true)
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200)
	s.do("GET", "/api/v1/nodes/node-1", nil).want(200).is("cordoned", false)
	s.do("POST", "/api/v1/nodes/nope/cordon", nil).want(404)
	s.do("DELETE", "/api/v1/nodes/nope", nil).want(404)
	before = s.revision()
	if r := s.do("DELETE", "/api/v1/nodes/node-2", nil).want(409); !strings.Contains(r.raw, "connected") {
		t.Errorf("it does not say why: %s", r.raw)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused deletion wrote something: %v", keys)
	}
	for range 2 {
		s.do("DELETE", "/api/v1/nodes/node-1", nil).want(204)
	}
	s.status(s.start("lobby"), "ghost", fleet.Status{State: fleet.Offline}) // the node has no other records
	s.do("DELETE", "/api/v1/nodes/ghost", nil).want(204)
	if d, err := store.Get(t.Context(), s.store, keys.NodeDesired("ghost")); err != nil || !d.Deleted {
		t.Errorf("what a node without a record holds is never given up: %+v %v", d, err)
	}
	if d, err := store.Get(t.Context(), s.store, keys.NodeDesired("node-1")); err != nil || !d.Deleted || d.By == "" {
		t.Errorf("the wish is not written: %+v %v", d, err)
	}
	s.do("GET", "/api/v1/nodes/nope", nil).want(404)
	s.do("GET", "/api/v1/overview", nil).want(200).is("nodeCount", 1).is("groupCount", 1).is("instanceCount", 2).is("playerCount", 0)
}

func TestANodeIsCordonedWhileItIsBeingFilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	ctx, stop := context.WithCancel(t.Context())
	var filling sync.WaitGroup
	for range 4 { // as sequential placements do
		filling.Go(func() {
			for ctx.Err() == nil {
				a, _ := store.Get(ctx, s.store, keys.Alloc("node-1"))
				_, _ = s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.Alloc("node-1"), fleet.Alloc{Node: "node-1"}, a.ModRev)}})
			}
		})
	}
	t.Cleanup(func() { stop(); filling.Wait() })
	for range 3 {
		s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200)
		s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200)
	}
}

func TestUncordoningBarsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.do("POST", "/api/v1/nodes/node-1/cordon", nil).want(200)
	before, err := store.Get(t.Context(), s.store, keys.Alloc("node-1"))
	if err != nil {
		t.Fatal(err)
	}
	s.do("POST", "/api/v1/nodes/node-1/uncordon", nil).want(200)
	if after, err := store.Get(t.Context(), s.store, keys.Alloc("node-1")); err != nil || after.ModRev != before.ModRev {
		t.Errorf("touched at %d after %d, %v", after.ModRev, before.ModRev, err)
	}
}
