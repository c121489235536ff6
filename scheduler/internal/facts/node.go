// Package facts derives the inputs of packages place and budget from the records of a
// snapshot: nodes, requests, holds, failures and the ledger. It does no I/O.
//
// The controller derives the inputs of its own decisions here. A Moment is a copy of the
// controller's model for questions, which package answer decides in the same way.
package facts

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Node builds a node for the model from what its agent reported, overridden by what the
// operator wants.
func Node(snap *view.Snapshot, id fleet.NodeID, n *fleet.Node) place.Node {
	_, live := snap.NodeSessions.Get(id)
	desired, _ := snap.NodesDesired.Get(id)
	m := place.Node{
		ID: id, Live: live, Cordoned: desired != nil && desired.Cordoned, Runtimes: n.Runtimes,
		Labels: n.LabelsUnder(desired), Capacity: n.Capacity, Room: n.RoomUnder(desired), BlockedBy: n.BlockedPorts, Policy: n.Policy,
	}
	if r, ok := snap.Reports.Get(id); ok {
		m.CPULoad, m.DiskMiB, m.DiskFreeMiB, m.Warm = r.CPU, r.DiskMiB, r.DiskFreeMiB, r.Warm
	}
	return m
}

// TemplateMiB returns the disk space that a plan's templates need. Only the latest versions
// count, because the size of older ones is not known here.
func TemplateMiB(snap *view.Snapshot, p *fleet.Plan) int {
	bytes := int64(0)
	for _, l := range p.Layers {
		if h, ok := snap.TemplateHeads.Get(l.TemplateRef.String()); ok && h.Digest == l.Digest {
			bytes += h.SizeBytes
		}
	}
	return int((bytes + 1<<20 - 1) >> 20)
}

// Hold returns what an instance occupies on its node. ok is false when it occupies nothing
// or i is nil. One that is asleep occupies its ports and its disk space.
func Hold(i *fleet.Instance) (h place.Hold, ok bool) {
	if i == nil || !i.HoldsNode() {
		return place.Hold{}, false
	}
	p := i.Placement
	h = place.HoldOf(p.Node, p.Group, p.Resources, p.Port, p.Ports)
	h.Alone, h.Resources = p.Alone, i.Occupies()
	return h, true
}

// own returns what an instance that wakes occupies already, or nil.
func own(i *fleet.Instance) *place.Hold {
	if h, ok := Hold(i); ok && i.Waking() {
		return &h
	}
	return nil
}
