package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// nodeOf is what the model needs to know of a node: what its agent said at the join
// and measured since, below what the operator wants.
func nodeOf(snap *view.Snapshot, id fleet.NodeID, n *fleet.Node) place.Node {
	_, live := snap.NodeSessions.Get(id)
	desired, _ := snap.NodesDesired.Get(id)
	m := place.Node{
		ID: id, Live: live, Cordoned: desired != nil && desired.Cordoned, Runtimes: n.Runtimes,
		Labels: n.LabelsUnder(desired), Capacity: n.Capacity, Room: n.RoomUnder(desired), BlockedBy: n.BlockedPorts,
	}
	if r, ok := snap.Reports.Get(id); ok {
		m.CPULoad, m.DiskMiB, m.DiskFreeMiB, m.Warm = r.CPU, r.DiskMiB, r.DiskFreeMiB, r.Warm
	}
	return m
}

// templateMiB is how much disk a plan's templates need, as far as their heads say:
// those of older versions do not.
func templateMiB(snap *view.Snapshot, p *fleet.Plan) int {
	bytes := int64(0)
	for _, l := range p.Layers {
		if h, ok := snap.TemplateHeads.Get(l.TemplateRef.String()); ok && h.Digest == l.Digest {
			bytes += h.SizeBytes
		}
	}
	return int((bytes + 1<<20 - 1) >> 20)
}

// missing remembers what a verdict says is missing that comes with no event of its own.
func (s *state) missing(g fleet.GroupName, u *place.Unfit) {
	for i := range u.Lost {
		switch u.Lost[i].Filter {
		case place.FilterTemplate:
			s.disk = true
		case place.FilterLoad:
			s.load = true
		case place.FilterSpread:
			s.skew[g] = struct{}{}
		}
	}
}

// evened takes in that there is one more of a group: where that makes its spread more
// even, another one may follow elsewhere.
func (s *state) evened(g fleet.GroupName) {
	if _, waits := s.skew[g]; waits {
		delete(s.skew, g)
		s.room++
	}
}

// moreDisk has whoever waits for disk looked at again.
func (s *state) moreDisk() {
	if s.disk {
		s.disk = false
		s.room++
	}
}

// loadReported has whoever waits for the load of a node looked at again when a node's load
// has crossed the bound: it takes instances again, or is no longer an alternative to others.
func (s *state) loadReported(before, after *fleet.Report) {
	above := func(r *fleet.Report) bool { return r != nil && r.CPU > s.maxCPU }
	if s.load && above(before) != above(after) {
		s.load = false
		s.room++
	}
}

// reported takes in what a report frees: processors, disk, and instances that players have left.
func (s *state) reported(c *view.Change) {
	before, _ := c.Before.(*fleet.Report)
	after, _ := c.After.(*fleet.Report)
	s.loadReported(before, after)
	if before == nil {
		return
	}
	if after == nil || after.DiskMiB == 0 || after.DiskFreeMiB > before.DiskFreeMiB {
		s.moreDisk()
	}
	if !s.hungry || s.left {
		return
	}
	for id, i := range before.Instances {
		if i.Players > 0 && (after == nil || after.Instances[id].Players == 0) {
			s.left = true
			return
		}
	}
}

// noteFailure tells the model of an instance that has just crashed or could not be
// started by its node, also where its agent starts it again in place.
func (s *state) noteFailure(before, after *fleet.Instance, now time.Time, listed bool) {
	for _, at := range failures(before, after, now, listed) {
		s.model.Failed(after.Status.Node, after.Intent.Group, after.Intent.GroupRevision, at)
	}
}

// failures are when an instance failed since it was seen last. What it says while it is
// followed happens now, whatever the clocks of hosts say; with listed it may have been
// there for long, and its times count as far as they have passed.
func failures(before, after *fleet.Instance, now time.Time, listed bool) (all []time.Time) {
	fail := func(at time.Time) {
		if !listed || at.After(now) {
			at = now
		}
		all = append(all, at)
	}
	n, at := restarts(before, after, now)
	for range n {
		fail(at)
	}
	if at, ok := failedAt(after); ok {
		if _, known := failedAt(before); !known || before.Status.Generation != after.Status.Generation {
			fail(at)
		}
	}
	return all
}

// restarts are how often an instance was started again in place since it was seen last, and
// when. Of one never seen before the record has only the number: they count when all
// of them were lately. After a restart of the host, how it ended is not known.
func restarts(before, after *fleet.Instance, now time.Time) (n int, at time.Time) {
	if after == nil || after.Status == nil || after.Status.Restarts == 0 || after.Placement == nil {
		return 0, time.Time{}
	}
	s := after.Status
	if s.Exit != nil && !s.Exit.Known {
		return 0, time.Time{}
	}
	if before != nil && before.Status != nil && before.Status.Generation == s.Generation {
		return min(max(0, s.Restarts-before.Status.Restarts), fleet.CrashHistory), s.ChangedAt
	}
	if placed := after.Placement.PlacedAt; now.Sub(placed) < place.FailureWindow {
		return min(s.Restarts, fleet.CrashHistory), placed
	}
	return 0, time.Time{}
}

// failedAt is when an instance crashed or could not be started; ok is false when it
// did not, or when its node and plan are not to blame.
func failedAt(i *fleet.Instance) (at time.Time, ok bool) {
	if i == nil || i.Status == nil || i.Status.State != fleet.Crashed && i.Status.State != fleet.Failed {
		return time.Time{}, false
	}
	return i.FailedAt()
}
