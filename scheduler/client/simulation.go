package client

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Question is the input of a simulation. Set exactly one field.
type Question struct {
	// Place asks where new instances of a group would go.
	Place *PlaceQuestion `json:"place,omitempty"`
	// Drain asks where the instances on a node would go if it were drained.
	Drain *DrainQuestion `json:"drain,omitempty"`
	// Lose asks what would happen if a node were lost.
	Lose *NodeQuestion `json:"lose,omitempty"`
	// Move asks to which node a static instance could move with its data.
	Move *MoveQuestion `json:"move,omitempty"`
}

// PlaceQuestion names a group and the number of additional instances.
type PlaceQuestion struct {
	Group fleet.GroupName `json:"group"`
	// Count is from 1 to MaxPlace.
	Count int `json:"count"`
	// Spec is a hypothetical spec of the group; nil means its current one. It must be
	// valid. With a Spec, the group need not exist.
	Spec *fleet.GroupSpec `json:"spec,omitempty"`
}

// MoveQuestion names an instance and its new node. An empty Node leaves the choice to the scheduler.
type MoveQuestion struct {
	Instance fleet.InstanceID `json:"instance"`
	Node     fleet.NodeID     `json:"node,omitempty"`
}

// NodeQuestion names a node.
type NodeQuestion struct {
	Node fleet.NodeID `json:"node"`
}

// DrainQuestion names a node that is drained. With MoveStatic, the static instances move with their
// data. Nodes in Also take no instances meanwhile.
type DrainQuestion struct {
	Node       fleet.NodeID   `json:"node"`
	MoveStatic bool           `json:"moveStatic,omitempty"`
	Also       []fleet.NodeID `json:"also,omitempty"`
}

// MaxPlace is the maximum of PlaceQuestion.Count.
const MaxPlace = 10_000

// Validate returns an Invalid error that names the wrong field, or nil for a valid
// question.
func (q Question) Validate() error {
	set := 0
	for _, on := range []bool{q.Place != nil, q.Drain != nil, q.Lose != nil, q.Move != nil} {
		if on {
			set++
		}
	}
	switch {
	case set == 0:
		return errs.New(errs.Invalid, `say what to simulate: {"place":{"group":"lobby","count":3}}, {"drain":{"node":"node-1"}} or {"lose":{"node":"node-1"}}`)
	case set > 1:
		return errs.New(errs.Invalid, "one of place, drain, lose and move at a time: ask again for the others")
	case q.Place != nil && q.Place.Group == "":
		return errs.Field("place.group", "is missing: name a group")
	case q.Place != nil && (q.Place.Count < 1 || q.Place.Count > MaxPlace):
		return errs.Field("place.count", "must be between 1 and %d, is %d", MaxPlace, q.Place.Count)
	case q.Drain != nil && q.Drain.Node == "":
		return errs.Field("drain.node", "is missing: name a node")
	case q.Move != nil && q.Move.Instance == "":
		return errs.Field("move.instance", "is missing: name an instance")
	case q.Lose != nil && q.Lose.Node == "":
		return errs.Field("lose.node", "is missing: name a node")
	}
	return nil
}

// String returns a short description of the question.
func (q Question) String() string {
	switch {
	case q.Place != nil:
		return fmt.Sprintf("place %d of %s", q.Place.Count, q.Place.Group)
	case q.Drain != nil:
		return "drain " + string(q.Drain.Node)
	case q.Lose != nil:
		return "lose " + string(q.Lose.Node)
	case q.Move != nil:
		return "move " + string(q.Move.Instance)
	}
	return "nothing"
}

// Simulation is the answer to a Question.
type Simulation struct {
	// Revision is the store revision that the answer is based on.
	Revision int64 `json:"revision"`
	// Placed, Pending, Kept and Stopped count the outcomes by effect.
	Placed  int `json:"placed"`
	Pending int `json:"pending"`
	Kept    int `json:"kept"`
	Stopped int `json:"stopped"`
	// Instances are the outcomes, in the order of the decisions.
	Instances []Outcome `json:"instances"`
	// Unfit lists the reasons for waiting, once for all instances of a group that share
	// one.
	Unfit []Waiting `json:"unfit,omitempty"`
	// Notes are sentences about what lies outside of placement.
	Notes []string `json:"notes,omitempty"`
}

// Effect is what would happen to an instance.
type Effect string

// Effects of a simulated change.
const (
	EffectPlaced  Effect = "placed"  // it would go to Node
	EffectPending Effect = "pending" // it would wait for resources
	EffectKept    Effect = "kept"    // it would stay, or wait for its node
	EffectStopped Effect = "stopped" // it would not be replaced
)

// Outcome is what would happen to one instance.
type Outcome struct {
	// Instance is an existing instance; empty for a new one.
	Instance fleet.InstanceID `json:"instance,omitempty"`
	// Name is the name that the instance has or would get.
	Name  string          `json:"name"`
	Group fleet.GroupName `json:"group"`
	// Replaces is the name of the instance that it would replace; empty when it replaces
	// none.
	Replaces string `json:"replaces,omitempty"`
	// From is the current node of the instance, or of the one it replaces.
	From   fleet.NodeID `json:"from,omitempty"`
	Effect Effect       `json:"effect"`
	// Node, Port, Ports and Score are set when it would be placed.
	Node  fleet.NodeID       `json:"node,omitempty"`
	Port  int                `json:"port,omitempty"`
	Ports map[string]int     `json:"ports,omitempty"`
	Score map[string]float64 `json:"score,omitempty"`
	// Reason and Message say why it would not be placed. For waiting instances, Waiting
	// says more.
	Reason  fleet.Reason `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
}

// Waiting is a reason for waiting that instances of one group share.
type Waiting struct {
	Group     fleet.GroupName `json:"group"`
	Instances int             `json:"instances"`
	Unfit
	// Nodes is the number of joined nodes; Lost counts how many of them each filter
	// excluded.
	Nodes int                `json:"nodes"`
	Lost  []fleet.FilterLoss `json:"lost,omitempty"`
}
