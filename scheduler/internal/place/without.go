package place

import (
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// FitsWithout reports whether a request would fit on a node without some of its holds. It
// charges nothing.
func (m *Model) FitsWithout(r *Request, id fleet.NodeID, without []Hold) bool {
	n, ok := m.nodes[id]
	if !ok || n.Runtimes == nil {
		return false
	}
	c := m.ask(r)
	if c.problem != "" {
		return false
	}
	trial := *n
	trial.ports.held, trial.groups = slices.Clone(n.ports.held), maps.Clone(n.groups)
	for _, h := range without {
		trial.used = trial.used.Sub(h.Resources)
		trial.count(h, -1)
		for _, p := range h.Ports {
			trial.ports.release(p)
		}
	}
	return c.excludedBy(&trial) == nil
}

// Lacking returns which resources a node lacks for a request without some of its holds. No
// part is negative. A resource that the request does not need is not lacking.
func (m *Model) Lacking(r *Request, id fleet.NodeID, without []Hold) fleet.Resources {
	n, ok := m.nodes[id]
	if !ok {
		return r.Plan.Resources
	}
	part := func(wanted, free int) int {
		if wanted <= 0 {
			return 0
		}
		return max(0, wanted-free)
	}
	want, free := r.Plan.Resources, n.Free()
	for _, h := range without {
		free = free.Add(h.Resources)
	}
	return fleet.Resources{
		MemoryMiB: part(want.MemoryMiB, free.MemoryMiB),
		CPU:       part(want.CPU, free.CPU),
		DiskMiB:   part(want.DiskMiB, free.DiskMiB),
	}
}
