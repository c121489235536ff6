package history

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Records are the records that checks read.
type Records struct {
	Groups     map[fleet.GroupName]fleet.Group
	Intents    map[fleet.InstanceID]fleet.Intent
	Placements map[PlaceID]fleet.Placement
	Orders     map[PlaceID]fleet.Order
	Statuses   map[fleet.InstanceID]fleet.Status
	Nodes      map[fleet.NodeID]fleet.Node
	Sessions   map[fleet.NodeID]fleet.NodeSession
	Loops      map[fleet.GroupName]crashloop.Loop
	Pending    map[fleet.InstanceID]fleet.Pending
	// Owners maps shard keys to their create revisions.
	Owners map[string]int64
}

// PlaceID identifies an instance on a node.
type PlaceID struct {
	Node     fleet.NodeID
	Instance fleet.InstanceID
}

func newRecords() Records {
	return Records{
		Groups: map[fleet.GroupName]fleet.Group{}, Intents: map[fleet.InstanceID]fleet.Intent{},
		Placements: map[PlaceID]fleet.Placement{}, Orders: map[PlaceID]fleet.Order{},
		Statuses: map[fleet.InstanceID]fleet.Status{}, Nodes: map[fleet.NodeID]fleet.Node{},
		Sessions: map[fleet.NodeID]fleet.NodeSession{}, Loops: map[fleet.GroupName]crashloop.Loop{},
		Pending: map[fleet.InstanceID]fleet.Pending{}, Owners: map[string]int64{},
	}
}

// set applies one change.
func (r *Records) set(e Event) error {
	kind, rest, ok := keys.Split(e.Key)
	if !ok || len(rest) == 0 {
		return nil
	}
	last := rest[len(rest)-1]
	switch kind {
	case "groups":
		return put(r.Groups, fleet.GroupName(last), e)
	case "instances":
		return put(r.Intents, fleet.InstanceID(last), e)
	case "placements":
		return put(r.Placements, PlaceID{fleet.NodeID(rest[0]), fleet.InstanceID(last)}, e)
	case "orders":
		return put(r.Orders, PlaceID{fleet.NodeID(rest[0]), fleet.InstanceID(last)}, e)
	case "status":
		return put(r.Statuses, fleet.InstanceID(last), e)
	case "nodes":
		return put(r.Nodes, fleet.NodeID(last), e)
	case "crashloops":
		return put(r.Loops, fleet.GroupName(last), e)
	case "pending":
		return put(r.Pending, fleet.InstanceID(last), e)
	case "sessions":
		if rest[0] == "node" {
			return put(r.Sessions, fleet.NodeID(last), e)
		}
	case "shards":
		if e.Removed {
			delete(r.Owners, e.Key)
		} else {
			r.Owners[e.Key] = e.CreateRev
		}
	}
	return nil
}

func put[K comparable, T any](m map[K]T, k K, e Event) error {
	if e.Removed {
		delete(m, k)
		return nil
	}
	v, err := store.Decode[T](e.KeyValue)
	if err != nil {
		return err
	}
	m[k] = v
	return nil
}

// Instances returns the records joined by instance. If an instance has several placements,
// the highest generation counts.
func (r *Records) Instances() map[fleet.InstanceID]*fleet.Instance {
	out := map[fleet.InstanceID]*fleet.Instance{}
	for id, in := range r.Intents {
		out[id] = &fleet.Instance{Intent: in}
	}
	for at, p := range r.Placements {
		if i := out[at.Instance]; i != nil && (i.Placement == nil || p.Generation > i.Placement.Generation) {
			i.Placement = &p
		}
	}
	for id, s := range r.Statuses {
		if i := out[id]; i != nil {
			i.Status = &s
		}
	}
	for id, p := range r.Pending {
		if i := out[id]; i != nil {
			i.Pending = &p
		}
	}
	return out
}
