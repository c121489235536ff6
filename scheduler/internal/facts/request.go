package facts

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/pending"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// PlanMissing is the verdict on an instance whose plan is not in the store.
func PlanMissing() *place.Unfit {
	return &place.Unfit{Reason: fleet.ReasonPlanMissing, Message: "its plan is not in the store yet"}
}

// Request builds the placement request for an instance. A static instance is pinned to
// the node with its data, which a move may have copied to another one, unless its group lets it
// leave a lost node. It waits when that node was deleted. A replacement that was made for a certain node is pinned to that node. An
// instance that wakes is pinned to the node on which it sleeps, unless that takes no instances.
func Request(i *fleet.Instance, plan *fleet.Plan, snap *view.Snapshot) *place.Request {
	r := &place.Request{ID: i.Intent.ID, Group: i.Intent.Group, Plan: plan, TemplateMiB: TemplateMiB(snap, plan)}
	if old := i.Placement; old != nil {
		r.PreferredNode, r.PreferredPort = old.Node, old.Port
		record, known := snap.Nodes.Get(old.Node)
		r.Own = own(i)
		switch {
		case !plan.Static && r.Own != nil && known && serves(snap, old.Node):
			r.Pinned = old.Node
		case !plan.Static, known && i.MayLeave(record.ModRev):
		case i.Moved() != nil && holds(snap, i.Moved()):
			r.Pinned = i.Moved().Node
		case i.Moved() == nil && known && old.On(record):
			r.Pinned = old.Node
		case !plan.Exclusive() && i.Intent.DiscardsData != old.Generation:
			r.Waits = dataLost(i)
		}
	}
	if to := MoveTarget(snap, i); to != "" {
		r.Pinned = to
	}
	return r
}

// holds reports whether the node of a copy still has the data directory with it.
func holds(snap *view.Snapshot, c *fleet.DataCopy) bool {
	n, ok := snap.Nodes.Get(c.Node)
	return ok && n.DataUUID == c.DataUUID
}

// serves reports whether a node has a session and is not cordoned.
func serves(snap *view.Snapshot, id fleet.NodeID) bool {
	_, live := snap.NodeSessions.Get(id)
	desired, ok := snap.NodesDesired.Get(id)
	return live && (!ok || !desired.Cordoned)
}

// dataLost is the verdict on a static instance whose data was on a deleted node.
func dataLost(i *fleet.Instance) *place.Unfit {
	return &place.Unfit{Reason: fleet.ReasonDataLost, Message: fmt.Sprintf(
		"its data was on node %s, which was deleted: it starts with its data once that node joins again with its data directory; to start it without the data: orrery start instance %s --discard-data",
		i.DataNode(), i.Intent.Name)}
}

// MoveTarget returns the node that a rebalancing move made a replacement for. It is empty
// for other instances.
func MoveTarget(snap *view.Snapshot, i *fleet.Instance) fleet.NodeID {
	if i.Intent.Reason != fleet.ReasonRebalanced { // nearly all
		return ""
	}
	if e, ok := snap.Evictions.Get(i.Intent.Replaces); ok && e.Reason == fleet.ReasonRebalanced {
		return e.To
	}
	return ""
}

// MoveRefused is the verdict on a replacement that does not fit on its node now.
func MoveRefused(to fleet.NodeID, u *place.Unfit) *place.Unfit {
	return &place.Unfit{Reason: fleet.ReasonNoNodeFits, Message: fmt.Sprintf("it is to move to %s, which cannot take it now: %s", to, u.Message), Lost: u.Lost, Nodes: u.Nodes}
}

// Waiting returns the queue entry of an instance that needs a placement.
func Waiting(i *fleet.Instance, rank pending.Rank) *pending.Instance {
	in := &i.Intent
	return &pending.Instance{ID: in.ID, Group: in.Group, Age: in.ModRev, Ordinal: in.Ordinal, Rank: rank, Index: -1}
}

// Rank returns a group's rank; zero when the group has no record.
func Rank(snap *view.Snapshot, g fleet.GroupName) pending.Rank {
	if group, ok := snap.Groups.Get(g); ok {
		return pending.RankOf(&group.Spec)
	}
	return pending.Rank{}
}
