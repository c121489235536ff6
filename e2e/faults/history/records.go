package history

import (
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/reports"
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
	// Desired are the wishes of operators about nodes.
	Desired map[fleet.NodeID]fleet.NodeDesired
	// Deployments and Progress are by the common end of their keys.
	Deployments map[string]deployment.Deployment
	Progress    map[string]deployment.Progress
	// Moves are the latest moves of static instances.
	Moves map[fleet.InstanceID]move.Move
	// Figures are by node and part.
	Figures map[string]reports.ReportPart
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
		Desired: map[fleet.NodeID]fleet.NodeDesired{}, Deployments: map[string]deployment.Deployment{},
		Progress: map[string]deployment.Progress{}, Moves: map[fleet.InstanceID]move.Move{}, Figures: map[string]reports.ReportPart{},
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
	case "nodes-desired":
		return put(r.Desired, fleet.NodeID(last), e)
	case "deployments":
		return put(r.Deployments, strings.Join(rest, "/"), e)
	case "deployment-progress":
		return put(r.Progress, strings.Join(rest, "/"), e)
	case "moves":
		return put(r.Moves, fleet.InstanceID(last), e)
	case "figures":
		return put(r.Figures, strings.Join(rest, "/"), e)
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

// Players returns the reported number of players of an instance on a node.
func (r *Records) Players(node fleet.NodeID, id fleet.InstanceID) int {
	return r.Figures[string(node)+"/"+strconv.Itoa(id.Part())].Instances[id].Players
}

// Latest returns the latest deployment of a group with its progress. ok is false without one.
func (r *Records) Latest(group fleet.GroupName) (latest deployment.Joined, ok bool) {
	for name, d := range r.Deployments {
		if d.Group != group || ok && d.Number < latest.Number {
			continue
		}
		latest, ok = deployment.Joined{Deployment: &d}, true
		if p, begun := r.Progress[name]; begun {
			latest.Progress = &p
		}
	}
	return latest, ok
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
