package main

import (
	"slices"

	"github.com/orreryhq/orrery/e2e/faults/check"
	"github.com/orreryhq/orrery/e2e/faults/plan"
	"github.com/orreryhq/orrery/e2e/faults/record"
	"github.com/orreryhq/orrery/libs/fleet"
)

// check runs all checks on the recorded data.
func (t *trial) check() []string {
	events, err := t.history.Events()
	if err != nil {
		return collect(err)
	}
	runs, err := record.Read(t.recordDir())
	if err != nil {
		return collect(err)
	}
	moves, err := check.Moved(events)
	if err != nil {
		return collect(err)
	}
	t.runs, t.moves, t.revisions = len(runs), len(moves), t.history.Rev()
	lives := map[int]bool{}
	for _, r := range living(runs) {
		lives[r.PID] = true
	}
	exits := check.Exits{
		Runs: runs, Events: events, MayShrink: t.mayShrink, MayReplace: t.mayReplace, MayFail: t.mayFail, Exclusive: t.exclusive, MayExpire: t.mayExpire,
		Living: func(pid int) bool { return lives[pid] },
		Killed: func(pid int) bool { return t.killed[pid] },
	}
	out := slices.Concat(t.broken, check.StaticOverlaps(runs), check.PortClashes(runs), check.DataLosses(runs, moves), check.WrongFiles(runs))
	records, err := check.Records(events)
	out = append(append(out, records...), collect(err)...)
	occupied, err := check.Occupied(events)
	out = append(append(out, occupied...), collect(err)...)
	ends, err := exits.Check()
	return append(append(out, ends...), collect(err)...)
}

// mayShrink reports whether the scenario lowers a group's count or loses a node.
func (t *trial) mayShrink(name fleet.GroupName) bool {
	for _, g := range t.scenario.Groups {
		if g.Name == string(name) && g.Final < g.Count {
			return true
		}
	}
	return t.scenario.Has(plan.Scale, string(name)) || t.scenario.Has(plan.Deploy, string(name)) || t.scenario.Has(plan.Drain, "")
}

// mayReplace reports whether the scenario replaces instances of a group for a reason.
func (t *trial) mayReplace(name fleet.GroupName, why fleet.Reason) bool {
	switch why {
	case fleet.ReasonDeployment:
		return t.scenario.Has(plan.Deploy, string(name))
	case fleet.ReasonNodeDrained:
		return t.scenario.Has(plan.Drain, "")
	case fleet.ReasonMoved:
		return slices.ContainsFunc(t.scenario.Groups, func(g plan.Group) bool {
			return g.Name == string(name) && slices.ContainsFunc(t.scenario.Faults, func(f plan.Fault) bool { return f.Kind == plan.Move && g.Has(f.Target) })
		})
	}
	return false
}

// exclusive reports whether a static group may be replaced elsewhere.
func (t *trial) exclusive(name fleet.GroupName) bool {
	switched := slices.ContainsFunc(t.scenario.Faults, func(f plan.Fault) bool { return f.Kind == plan.Switch && f.Target == string(name) && f.Number == 1 })
	return switched || slices.ContainsFunc(t.scenario.Groups, func(g plan.Group) bool { return g.Name == string(name) && g.ReplaceOnLoss })
}

// mayFail reports whether the scenario explains why an instance could not start.
func (t *trial) mayFail(why fleet.Reason) bool {
	return why == fleet.ReasonDiskFull && len(t.disks) > 0
}
