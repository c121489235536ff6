package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/e2e/faults/history"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Records returns the violations of what every revision of the records promises:
//
//   - A placement carries the epoch of the scheduler that owned the group's shard when it
//     was written. A status carries the epoch of its node's session.
//   - The instances on a node reserve no more memory than it has, and share no port.
//   - No generation of an instance is placed twice, and no two living instances share a
//     name.
//   - A node is cordoned and empty when its drain completes, and gets nothing afterwards.
//   - The data of an instance that moves is copied while the instance does not run, and from then on
//     the instance is placed only where the copy is.
func Records(events []history.Event) ([]string, error) {
	c := &records{}
	err := history.Walk(events, func(before, after *history.State, txn []history.Event) error {
		for _, e := range txn {
			if !e.Removed {
				c.event(before, after, e)
			}
		}
		return nil
	})
	return c.out, err
}

type records struct{ out []string }

func (c *records) broken(rev int64, format string, args ...any) {
	c.out = append(c.out, fmt.Sprintf("revision %d: ", rev)+fmt.Sprintf(format, args...))
}

func (c *records) event(before, after *history.State, e history.Event) {
	kind, rest, ok := keys.Split(e.Key)
	if !ok {
		return
	}
	id := fleet.InstanceID(rest[len(rest)-1])
	switch kind {
	case "placements":
		p := after.Placements[history.PlaceID{Node: fleet.NodeID(rest[0]), Instance: id}]
		c.owned(before, p)
		c.once(after, p)
		if d := before.Desired[p.Node].Drain; d != nil && !d.CompletedAt.IsZero() {
			c.broken(p.ModRev, "drained: %s was placed on %s, which is drained", p.Name, p.Node)
		}
		if i := before.Instances()[id]; i != nil && i.Moved() != nil && i.Moved().Node != p.Node {
			c.broken(p.ModRev, "moved: %s was placed on %s, but its data was moved to %s", p.Name, p.Node, i.Moved().Node)
		}
		c.room(after, p.Node)
	case "status":
		c.session(before, after.Statuses[id])
	case "nodes-desired":
		c.drained(before, after, fleet.NodeID(id))
	case "moves":
		c.copied(before, after, id)
	case "instances":
		c.name(after, after.Intents[id])
	}
}

// owned checks that the author of a placement owned the shard.
func (c *records) owned(before *history.State, p fleet.Placement) {
	key := keys.Shard("scheduler", fleet.ShardOf(p.Group)).String()
	if owner := before.Owners[key]; owner != p.Epoch {
		c.broken(p.ModRev, "former owner: %s was placed under epoch %d, but %s had %d", p.Name, p.Epoch, key, owner)
	}
}

// session checks that the author of a status was the agent of the node's session, or that
// the status reports the node as lost while it had no session.
func (c *records) session(before *history.State, s fleet.Status) {
	session, ok := before.Sessions[s.Node]
	switch {
	case s.State == fleet.Offline:
		if ok {
			c.broken(s.ModRev, "former owner: %s was declared lost with %s, whose session lived", s.Instance, s.Node)
		}
	case !ok || session.CreateRev != s.Epoch:
		c.broken(s.ModRev, "former owner: status %s of %s was written under epoch %d, but the session of %s had %d",
			s.State, s.Instance, s.Epoch, s.Node, session.CreateRev)
	}
}

// once checks that a generation has one placement.
func (c *records) once(after *history.State, p fleet.Placement) {
	for at, other := range after.Placements {
		if at.Instance == p.Instance && at.Node != p.Node && other.Generation >= p.Generation {
			c.broken(p.ModRev, "placed twice: generation %d of %s is on %s and generation %d on %s", p.Generation, p.Name, p.Node, other.Generation, at.Node)
		}
	}
}

// room checks that the instances on a node fit and have different ports.
func (c *records) room(after *history.State, node fleet.NodeID) {
	used, ports := 0, map[int]string{}
	for _, p := range holders(after, node) {
		used += p.Resources.MemoryMiB
		for _, port := range append(slices.Collect(maps.Values(p.Ports)), p.Port) {
			if other, taken := ports[port]; taken && port != 0 {
				c.broken(after.Rev, "port twice: %s and %s have port %d of %s", other, p.Name, port, node)
			}
			ports[port] = p.Name
		}
	}
	if n, ok := after.Nodes[node]; ok && used > n.Capacity.MemoryMiB {
		c.broken(after.Rev, "over capacity: %d MiB are reserved on %s, which has %d", used, node, n.Capacity.MemoryMiB)
	}
}

// holders returns the placements that occupy a node.
func holders(s *history.State, node fleet.NodeID) []fleet.Placement {
	var out []fleet.Placement
	for at, p := range s.Placements {
		if at.Node != node {
			continue
		}
		i := fleet.Instance{Placement: &p}
		if status, ok := s.Statuses[at.Instance]; ok {
			i.Status = &status
		}
		if i.HoldsNode() {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b fleet.Placement) int { return int(a.ModRev - b.ModRev) })
	return out
}

// drained checks that a node whose drain has just completed is empty and cordoned.
func (c *records) drained(before, after *history.State, node fleet.NodeID) {
	was, is := before.Desired[node], after.Desired[node]
	if was.Draining() == nil || is.Drain == nil || is.Draining() != nil {
		return
	}
	if !is.Cordoned {
		c.broken(is.ModRev, "drained: %s is not cordoned", node)
	}
	for _, p := range holders(after, node) {
		c.broken(is.ModRev, "drained: %s is on %s, whose drain completed", p.Name, node)
	}
}

// copied checks that an instance does not run when a move ends its copy, and that the copy becomes its data.
func (c *records) copied(before, after *history.State, id fleet.InstanceID) {
	was, is := before.Moves[id], after.Moves[id]
	if was.ID != is.ID || was.Step != move.Copying || is.Step != move.Starting && is.Step != move.Done {
		return
	}
	i := after.Instances()[id]
	if i == nil || i.Moved() == nil || i.Moved().Node != is.Target {
		c.broken(is.ModRev, "moved: the copy of %s on %s is not its data", is.Name, is.Target)
		return
	}
	if i.HoldsNode() {
		c.broken(is.ModRev, "moved: %s was copied from %s while it was %s there", is.Name, is.Source, i.State())
	}
}

// name checks that no other living instance has the name.
func (c *records) name(after *history.State, in fleet.Intent) {
	if in.Desired != fleet.DesiredRunning {
		return
	}
	instances := after.Instances()
	if instances[in.ID].Terminal() {
		return
	}
	for id, other := range instances {
		if id != in.ID && other.Intent.Name == in.Name && !other.Terminal() {
			c.broken(after.Rev, "name twice: %s and %s are both %s", in.ID, id, in.Name)
		}
	}
}
