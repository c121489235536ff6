package events

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Totals are the figures of GROUP_AGGREGATES_UPDATED, kept along so that a change
// costs the same in a group of three and of thirty thousand. Translate keeps them
// up to date.
type Totals struct {
	groups    map[fleet.GroupName]Total
	instances map[fleet.InstanceID]share
	// reported is what each node's last report said of its instances.
	reported map[fleet.NodeID]map[fleet.InstanceID]int
}

// Total is one group's figures.
type Total struct {
	// Running is the number of instances that are ONLINE.
	Running int
	// Players is the number of players on them, as last reported.
	Players int
}

// share is what one instance adds to its group.
type share struct {
	group   fleet.GroupName
	running bool
	players int
}

// TotalsOf counts a snapshot.
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

// Of is a group's figures.
func (t *Totals) Of(g fleet.GroupName) Total { return t.groups[g] }

// instance takes over an instance's record, nil when it is gone. changed is true
// when its group's figures moved.
func (t *Totals) instance(id fleet.InstanceID, i *fleet.Instance) (changed bool) {
	next := share{players: t.instances[id].players}
	if i != nil {
		next.group, next.running = i.Intent.Group, i.State() == fleet.Online
	}
	return t.set(id, next, i != nil)
}

// report takes over a node's figures and returns the groups that moved. r is nil when it is gone.
func (t *Totals) report(n fleet.NodeID, r *fleet.Report) (moved []fleet.GroupName) {
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

// set replaces one instance's share; exists is false when the instance is gone.
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

// add counts a share in or, with sign -1, out. Only running instances have players.
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
