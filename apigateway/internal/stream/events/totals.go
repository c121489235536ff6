package events

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Totals are the figures of GROUP_AGGREGATES_UPDATED. They are updated incrementally by Translate, so
// the cost of a change does not depend on the size of a group.
type Totals struct {
	groups    map[fleet.GroupName]Total
	instances map[fleet.InstanceID]share
	// reported has what each node's last report said about its instances.
	reported map[fleet.NodeID]map[fleet.InstanceID]int
}

// Total has one group's figures.
type Total struct {
	// Running is the number of ONLINE instances that are not warm.
	Running int
	// Players is the number of players on them, as last reported.
	Players int
}

// share is what one instance contributes to its group.
type share struct {
	group   fleet.GroupName
	running bool
	players int
}

// TotalsOf returns the totals of a snapshot.
func TotalsOf(s *view.Snapshot) *Totals {
	t := &Totals{
		groups:    map[fleet.GroupName]Total{},
		instances: map[fleet.InstanceID]share{},
		reported:  map[fleet.NodeID]map[fleet.InstanceID]int{},
	}
	for _, i := range s.Instances.All() {
		t.instance(i.Intent.ID, i)
	}
	for n, r := range s.Reports.All() {
		t.report(n, r)
	}
	return t
}

// Of returns a group's figures.
func (t *Totals) Of(g fleet.GroupName) Total { return t.groups[g] }

// instance sets an instance's record; nil removes it. changed reports whether its group's figures
// changed.
func (t *Totals) instance(id fleet.InstanceID, i *fleet.Instance) (changed bool) {
	next := share{players: t.instances[id].players}
	if i != nil {
		next.group, next.running = i.Intent.Group, i.State() == fleet.Online && !i.Intent.Warm
	}
	return t.set(id, next, i != nil)
}

// report sets a node's figures and returns the changed groups. A nil r removes them.
func (t *Totals) report(n fleet.NodeID, r *reports.Report) (moved []fleet.GroupName) {
	players := map[fleet.InstanceID]int{}
	if r != nil {
		for id, i := range r.Instances {
			if i.Players != 0 {
				players[id] = i.Players
			}
		}
	}
	for id := range t.reported[n] {
		if _, still := players[id]; !still {
			moved = t.players(id, 0, moved)
		}
	}
	for id, count := range players {
		moved = t.players(id, count, moved)
	}
	t.reported[n] = players
	if len(players) == 0 {
		delete(t.reported, n)
	}
	return moved
}

func (t *Totals) players(id fleet.InstanceID, count int, moved []fleet.GroupName) []fleet.GroupName {
	s, known := t.instances[id]
	if !known {
		return moved
	}
	s.players = count
	if t.set(id, s, true) {
		moved = append(moved, s.group)
	}
	return moved
}

// set replaces one instance's share. exists is false if the instance no longer exists.
func (t *Totals) set(id fleet.InstanceID, next share, exists bool) (changed bool) {
	old, known := t.instances[id]
	group := old.group
	if exists {
		group = next.group
	}
	before := t.groups[group]
	if known {
		t.add(old, -1)
	}
	delete(t.instances, id)
	if exists {
		t.instances[id] = next
		t.add(next, 1)
	}
	return t.groups[group] != before
}

// add adds a share, or subtracts it with sign -1. Only running instances have players.
func (t *Totals) add(s share, sign int) {
	if !s.running {
		return
	}
	g := t.groups[s.group]
	g.Running += sign
	g.Players += sign * s.players
	t.groups[s.group] = g
	if g == (Total{}) {
		delete(t.groups, s.group)
	}
}
