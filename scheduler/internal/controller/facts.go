package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// noteCause records that a group waits for something whose change is not an event of its own:
// disk, load or spread.
func (s *state) noteCause(g fleet.GroupName, u *place.Unfit) {
	for i := range u.Lost {
		switch u.Lost[i].Filter {
		case place.FilterTemplate:
			s.awaitsDisk = true
		case place.FilterLoad:
			s.awaitsLoad = true
		case place.FilterSpread:
			s.awaitsSkew[g] = struct{}{}
		}
	}
}

// spreadChanged records one more instance of a group. That may make its spread more even,
// so that another instance fits elsewhere.
func (s *state) spreadChanged(g fleet.GroupName) {
	if _, waits := s.awaitsSkew[g]; waits {
		delete(s.awaitsSkew, g)
		s.capacityVersion++
	}
}

// diskFreed makes the classes try again if any instance waits for disk.
func (s *state) diskFreed() {
	if s.awaitsDisk {
		s.awaitsDisk = false
		s.capacityVersion++
	}
}

// loadReported makes the classes try again when a node's load has crossed the bound, if any
// instance waits for load. Below it, the node takes instances again; above it, it is no
// longer an alternative to other busy nodes.
func (s *state) loadReported(before, after *reports.Report) {
	above := func(r *reports.Report) bool { return r != nil && r.CPU > s.maxCPU }
	if s.awaitsLoad && above(before) != above(after) {
		s.awaitsLoad = false
		s.capacityVersion++
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
		s.diskFreed()
	}
	if !s.victimsBound || s.victimFreed {
		return
	}
	for id, i := range before.Instances {
		if i.Players > 0 && (after == nil || after.Instances[id].Players == 0) {
			s.victimFreed = true
			return
		}
	}
}

// noteFailure tells the model that an instance crashed or could not start, including
// crashes after which the agent restarted it in place.
func (s *state) noteFailure(before, after *fleet.Instance, now time.Time, listed bool) {
	for _, at := range facts.Failures(before, after, now, listed) {
		s.model.Failed(after.Status.Node, after.Intent.Group, after.Intent.GroupRevision, at)
	}
}
