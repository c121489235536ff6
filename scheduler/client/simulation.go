package client

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Question is what a simulation is asked. Exactly one part is to be set.
type Question struct {
	// Place asks where new instances of a group would go.
	Place *PlaceQuestion `json:"place,omitempty"`
	// Drain asks where what is on a node would go if the node were emptied.
	Drain *NodeQuestion `json:"drain,omitempty"`
	// Lose asks what would follow if a node were lost.
	Lose *NodeQuestion `json:"lose,omitempty"`
}

// PlaceQuestion names a group and how many more of its instances are wanted.
type PlaceQuestion struct {
	Group fleet.GroupName `json:"group"`
	// Count is from 1 to MaxPlace.
	Count int `json:"count"`
	// Spec is the group's as it would be; nil: as it is. It is taken to be valid, and the group
	// need not exist.
	Spec *fleet.GroupSpec `json:"spec,omitempty"`
}

// NodeQuestion names a node.
type NodeQuestion struct {
	Node fleet.NodeID `json:"node"`
}

// MaxPlace bounds PlaceQuestion.Count.
const MaxPlace = 10_000

// Validate is an Invalid error that names the field which cannot be used, nil when
// the question can be asked.
func (q Question) Validate() error {
	set := 0
	for _, on := range []bool{q.Place != nil, q.Drain != nil, q.Lose != nil} {
		if on {
			set++
		}
	}
	switch {
	case set == 0:
		return errs.New(errs.Invalid, `say what to simulate: {"place":{"group":"lobby","count":3}}, {"drain":{"node":"node-1"}} or {"lose":{"node":"node-1"}}`)
	case set > 1:
		return errs.New(errs.Invalid, "one of place, drain and lose at a time: ask again for the others")
	case q.Place != nil && q.Place.Group == "":
		return errs.Field("place.group", "is missing: name a group")
	case q.Place != nil && (q.Place.Count < 1 || q.Place.Count > MaxPlace):
		return errs.Field("place.count", "must be between 1 and %d, is %d", MaxPlace, q.Place.Count)
	case q.Drain != nil && q.Drain.Node == "":
		return errs.Field("drain.node", "is missing: name a node")
	case q.Lose != nil && q.Lose.Node == "":
		return errs.Field("lose.node", "is missing: name a node")
	}
	return nil
}

// What the question is about, in a few words.
func (q Question) String() string {
	switch {
	case q.Place != nil:
		return fmt.Sprintf("place %d of %s", q.Place.Count, q.Place.Group)
	case q.Drain != nil:
		return "drain " + string(q.Drain.Node)
	case q.Lose != nil:
		return "lose " + string(q.Lose.Node)
	}
	return "nothing"
}

// Simulation is what would happen.
type Simulation struct {
	// Revision is the store's revision the answer was computed from.
	Revision int64 `json:"revision"`
	// Placed, Pending, Kept and Stopped count the outcomes by what would happen.
	Placed  int `json:"placed"`
	Pending int `json:"pending"`
	Kept    int `json:"kept"`
	Stopped int `json:"stopped"`
	// Instances are the outcomes in the order they would be decided in.
	Instances []Outcome `json:"instances"`
	// Unfit says why instances would wait, once for all that wait alike.
	Unfit []Waiting `json:"unfit,omitempty"`
	// Notes say what placement alone does not know, a sentence each.
	Notes []string `json:"notes,omitempty"`
}

// Effect is what would happen to an instance.
type Effect string

// The effects.
const (
	EffectPlaced  Effect = "placed"  // it would go to Node
	EffectPending Effect = "pending" // it would wait for room
	EffectKept    Effect = "kept"    // it would stay, or wait for its node
	EffectStopped Effect = "stopped" // nothing would take its place
)

// Outcome is what would happen to one instance.
type Outcome struct {
	// Instance is an instance that exists; empty for one that would be made.
	Instance fleet.InstanceID `json:"instance,omitempty"`
	// Name is the instance's, or the one it would get.
	Name  string          `json:"name"`
	Group fleet.GroupName `json:"group"`
	// Replaces is the name of the instance whose place it would take; empty when none.
	Replaces string `json:"replaces,omitempty"`
	// From is the node it is on, or the one it replaces; empty when on none.
	From   fleet.NodeID `json:"from,omitempty"`
	Effect Effect       `json:"effect"`
	// Node, Port, Ports and Score are set when it would be placed.
	Node  fleet.NodeID       `json:"node,omitempty"`
	Port  int                `json:"port,omitempty"`
	Ports map[string]int     `json:"ports,omitempty"`
	Score map[string]float64 `json:"score,omitempty"`
	// Reason and Message say why, unless it would be placed; of those that wait
	// Waiting says more.
	Reason  fleet.Reason `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
}

// Waiting is a reason to wait that instances of a group would share.
type Waiting struct {
	Group     fleet.GroupName `json:"group"`
	Instances int             `json:"instances"`
	Unfit
	// Nodes is how many nodes were looked at, Lost how many of them each filter excluded.
	Nodes int                `json:"nodes"`
	Lost  []fleet.FilterLoss `json:"lost,omitempty"`
}
