package place_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// replicas simulates schedulers that share nodes. Each has a model that may lag behind the
// committed placements. A commit is refused if its model has not seen an earlier commit on
// the same node.
type replicas struct {
	t      *rapid.T
	models []*place.Model
	// seen is how much of log each model has seen.
	seen []int
	log  []place.Hold
	// truth sees every commit at once and prefers no node.
	truth *place.Model
}

func newReplicas(t *rapid.T, count int, nodes []place.Node) *replicas {
	r := &replicas{t: t, truth: model(nodes...), seen: make([]int, count)}
	for n := range count {
		m := model(nodes...)
		if count > 1 {
			m.Prefer(func(id fleet.NodeID) bool { return int(id[len(id)-1])%count == n }, false)
		}
		r.models = append(r.models, m)
	}
	return r
}

// show feeds the log up to upTo to a model.
func (r *replicas) show(n, upTo int) {
	for _, h := range r.log[r.seen[n]:upTo] {
		r.models[n].Charge(h)
	}
	r.seen[n] = upTo
}

// place lets replica n place one instance from its view. It returns false when the commit
// is refused.
func (r *replicas) place(n int, req place.Request) (done bool) {
	c, u := r.models[n].Place(&req)
	if u != nil {
		r.t.Fatal(u.Message)
	}
	for _, h := range r.log[r.seen[n]:] {
		if h.Node == c.Node {
			r.models[n].Release(c.Hold)
			return false
		}
	}
	r.best(req, c)
	r.models[n].Release(c.Hold) // the log charges it again
	r.log = append(r.log, c.Hold)
	r.truth.Charge(c.Hold)
	return true
}

// best fails the test unless the chosen node had the best score at the commit.
func (r *replicas) best(req place.Request, c place.Choice) {
	best, _ := r.truth.Place(&req)
	r.truth.Release(best.Hold)
	req.Pinned = c.Node
	here, _ := r.truth.Place(&req)
	r.truth.Release(here.Hold)
	if here.Score.Total() < best.Score.Total() {
		r.t.Fatalf("%s scored %v, %s %v", c.Node, here.Score.Parts(), best.Node, best.Score.Parts())
	}
}

func TestSeveralReplicasChooseTheBestNodeAsOneDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		equal := rapid.Bool().Draw(t, "equal nodes")
		nodes := make([]place.Node, rapid.IntRange(2, 9).Draw(t, "nodes"))
		for i := range nodes {
			nodes[i] = node(fleet.NodeID(fmt.Sprintf("n%d", i)), func(n *place.Node) {
				n.Capacity.MemoryMiB = 100_000
				if !equal {
					n.Capacity.MemoryMiB = rapid.IntRange(50_000, 100_000).Draw(t, "memory")
					n.CPULoad = rapid.Float64Range(0, 1).Draw(t, "load")
				}
			})
		}
		count := rapid.IntRange(1, 4).Draw(t, "replicas")
		r := newReplicas(t, count, nodes)
		where := fleet.Where{Profile: rapid.SampledFrom([]score.Profile{"", score.ProfileSpread}).Draw(t, "profile")}
		requests := make([]place.Request, count)
		for n := range requests { // each replica owns a different group
			requests[n] = *request(func(r *place.Request) {
				r.Group, r.Plan.Where, r.Plan.Ports = fleet.GroupName(fmt.Sprintf("g%d", n)), where, fleet.PortRange{Start: 100, End: 199}
			})
		}
		for done := 0; done < 6*len(nodes); {
			n := rapid.IntRange(0, count-1).Draw(t, "replica")
			r.show(n, rapid.IntRange(r.seen[n], len(r.log)).Draw(t, "known"))
			if r.place(n, requests[n]) {
				done++
				continue
			}
			r.show(n, len(r.log)) // it retries after it has seen the winning commit
		}
		if !equal || where.Profile != "" { // the spread profile looks at one group at a time
			return
		}
		on := map[fleet.NodeID]int{}
		for _, h := range r.log {
			on[h.Node]++
		}
		for _, n := range nodes {
			if on[n.ID] != 6 {
				t.Fatalf("%d instances on %d equal nodes: %v", len(r.log), len(nodes), on)
			}
		}
	})
}
