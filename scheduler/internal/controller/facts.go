package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// nodeOf builds a node for the model from what its agent reported, overridden by what the
// operator wants.
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

// templateMiB returns the disk space that a plan's templates need. Only the latest versions
// count, because the size of older ones is not known here.
func templateMiB(snap *view.Snapshot, p *fleet.Plan) int {
	bytes := int64(0)
	for _, l := range p.Layers {
		if h, ok := snap.TemplateHeads.Get(l.TemplateRef.String()); ok && h.Digest == l.Digest {
			bytes += h.SizeBytes
		}
	}
	return int((bytes + 1<<20 - 1) >> 20)
}

// missing records that a group waits for something whose change is not an event of its own:
// disk, load or spread.
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

// evened records one more instance of a group. That may make its spread more even, so that
// another instance fits elsewhere.
func (s *state) evened(g fleet.GroupName) {
	if _, waits := s.skew[g]; waits {
		delete(s.skew, g)
		s.room++
	}
}

// moreDisk makes the classes try again if any instance waits for disk.
func (s *state) moreDisk() {
	if s.disk {
		s.disk = false
		s.room++
	}
}

// loadReported makes the classes try again when a node's load has crossed the bound, if any
// instance waits for load. Below it, the node takes instances again; above it, it is no
// longer an alternative to other busy nodes.
func (s *state) loadReported(before, after *reports.Report) {
	above := func(r *reports.Report) bool { return r != nil && r.CPU > s.maxCPU }
	if s.load && above(before) != above(after) {
		s.load = false
		s.room++
	}
}

// reported handles what a report may free: CPU, disk, and instances that all players have
// left.
func (s *state) reported(c *view.Change) {
	before, _ := c.Before.(*reports.Report)
	after, _ := c.After.(*reports.Report)
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

// noteFailure tells the model that an instance crashed or could not start, including
// crashes after which the agent restarted it in place.
func (s *state) noteFailure(before, after *fleet.Instance, now time.Time, listed bool) {
	for _, at := range failures(before, after, now, listed) {
		s.model.Failed(after.Status.Node, after.Intent.Group, after.Intent.GroupRevision, at)
	}
}

// failures returns the times at which an instance failed since it was last seen. With
// listed false, a failure counts as happening now, so that host clocks do not matter. With
// listed true, the record may be old, and its own time counts unless it is in the future.
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

// restarts returns how often the agent restarted an instance in place since it was last
// seen, and when. For an instance not seen before, the record has only the number, so the
// restarts count if the placement is recent. Restarts by a host reboot do not count,
// because the exit is unknown.
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

// failedAt returns when an instance crashed or could not start. ok is false when it did
// not, or when its node and plan are not responsible.
func failedAt(i *fleet.Instance) (at time.Time, ok bool) {
	if i == nil || i.Status == nil || i.Status.State != fleet.Crashed && i.Status.State != fleet.Failed {
		return time.Time{}, false
	}
	return i.FailedAt()
}
