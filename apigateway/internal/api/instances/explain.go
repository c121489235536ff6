package instances

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/client"
)

// explanation says why an instance is in its state.
type explanation struct {
	ID         string           `json:"id"`
	UID        fleet.InstanceID `json:"uid"`
	Group      fleet.GroupName  `json:"group"`
	Generation int64            `json:"generation"`
	State      string           `json:"state"`
	Reason     string           `json:"reason"`
	Message    string           `json:"message"`
	// Revision is the revision of the state that was rated. It is 0 if unknown.
	Revision int64 `json:"revision"`
	// Chain are the steps that led to the state, the oldest first.
	Chain []link `json:"chain"`
	// Pending is set while the instance waits for a node, Placement if it has or had one.
	Pending   *pendingReason   `json:"pending,omitempty"`
	Placement *placementReason `json:"placement,omitempty"`
}

// link is a step: what happened, for what reason, by whom, and the revision of its record.
type link struct {
	Step     step         `json:"step"`
	Reason   fleet.Reason `json:"reason"`
	Message  string       `json:"message"`
	By       string       `json:"by,omitempty"`
	At       *time.Time   `json:"at,omitempty"`
	Revision int64        `json:"revision"`
	// GroupRevision is the revision of the group's spec that the instance was planned from.
	GroupRevision int64        `json:"groupRevision,omitempty"`
	Node          fleet.NodeID `json:"node,omitempty"`
	Exit          *fleet.Exit  `json:"exit,omitempty"`
	// Instance is the other instance of a replacement or an eviction.
	Instance fleet.InstanceID `json:"instance,omitempty"`
}

// step is the kind of a link.
type step string

// The steps.
const (
	stepRequested step = "wanted"   // the generation was requested
	stepReplaces  step = "replaces" // it replaces another instance
	stepWaits     step = "waits"    // it waits for a node
	stepEvicts    step = "room"     // another instance is evicted for it
	stepPlaced    step = "placed"   // a node was selected
	stepRetires   step = "retires"  // it takes no new players and stops when it is empty
	stepDrain     step = "drain"    // its node is being drained
	stepMoves     step = "moves"    // it moves with its data to another node
	stepSleep     step = "sleep"    // it was put to sleep
	stepStop      step = "stop"     // a stop was requested
	stepOrdered   step = "ordered"  // its node received an order
	stepState     step = "state"    // its agent reported the state
	stepReplaced  step = "replaced" // another instance replaced it
	stepPaused    step = "paused"   // a crash loop pause holds back its replacement
)

// pendingReason says why an instance waits.
type pendingReason struct {
	Reason  fleet.Reason       `json:"reason"`
	Message string             `json:"message"`
	Nodes   int                `json:"nodes"`
	Lost    []fleet.FilterLoss `json:"lost"`
	source
	// Best are nodes that fit: the scheduler has not reached the instance yet.
	Best []client.Candidate `json:"best,omitempty"`
}

// placementReason says why an instance runs on its node.
type placementReason struct {
	Node  fleet.NodeID   `json:"node"`
	Port  int            `json:"port"`
	Ports map[string]int `json:"ports,omitempty"`
	At    time.Time      `json:"at"`
	// Score are the parts of the score at the time of placement. FromRevision is the revision of
	// the state that the scheduler saw.
	Score        map[string]float64 `json:"score,omitempty"`
	FromRevision int64              `json:"fromRevision,omitempty"`
	// Now rates the nodes as if the instance were not placed. It is absent without an answer of the
	// scheduler.
	Now *currentRating `json:"now,omitempty"`
}

// currentRating is the present rating of the nodes.
type currentRating struct {
	source
	// Here is the node of the instance. Best are the nodes with the highest scores.
	Here  *client.Candidate  `json:"here,omitempty"`
	Best  []client.Candidate `json:"best"`
	Nodes int                `json:"nodes"`
	Lost  []fleet.FilterLoss `json:"lost"`
}

// source is the origin of a rating.
type source struct {
	// Source is "live" for an answer of the scheduler and "stored" for its last record.
	Source string `json:"source"`
	// Scheduler is the replica that answered. It is empty if Source is "stored".
	Scheduler string `json:"scheduler,omitempty"`
	// Revision is the revision of the state it was judged from; 0 when not known.
	Revision int64 `json:"revision"`
	// Note says why there is no live answer.
	Note string `json:"note,omitempty"`
}

// explain answers with the steps from the records and with the present rating by the scheduler.
func (a *API) explain(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	i, err := a.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	reason, message := i.Why()
	out := explanation{
		ID: i.Intent.Name, UID: i.Intent.ID, Group: i.Intent.Group, Generation: i.Intent.Generation,
		State: events.StateOf(i), Reason: string(reason), Message: message, Revision: s.Rev, Chain: slices.Concat(chainOf(s, i), drainOf(s, i, a.cfg.Operations.Now()), movesOf(s, i), pausedFor(s, i, a.cfg.Operations.Now())),
	}
	switch i.State() {
	case fleet.Offline:
		out.Reason = reasonNodeLost
	case fleet.Sleeping:
		out.Reason = reasonSleeping
	}
	a.addScheduler(c.Request.Context(), &out, i)
	c.JSON(http.StatusOK, out)
}

// addScheduler adds why the instance waits, or why it runs on its node.
func (a *API) addScheduler(ctx context.Context, out *explanation, i *fleet.Instance) {
	if p := i.Placement; p != nil {
		out.Placement = &placementReason{
			Node: p.Node, Port: p.Port, Ports: p.Ports, At: p.PlacedAt, Score: p.Score.Parts(), FromRevision: p.FromRevision,
		}
	}
	waits := i.NeedsPlacement()
	if !waits && !i.HoldsNode() {
		return
	}
	e, replica, err := a.cfg.Schedulers.Explain(ctx, i)
	if err == nil && e.Generation != i.Intent.Generation {
		err = errs.New(errs.Conflict, "the instance changed: retry")
	}
	live := source{Source: "live", Scheduler: replica, Revision: e.Revision}
	switch {
	case waits && err != nil:
		out.Pending = storedPending(i, errs.MessageOf(err))
	case waits:
		out.Pending = livePending(e, live)
	case err == nil:
		out.Placement.Now = &currentRating{source: live, Here: e.Here, Best: *resource.List(e.Best), Nodes: e.Nodes, Lost: *resource.List(e.Lost)}
	}
}

// livePending converts an answer of the scheduler.
func livePending(e client.Explanation, from source) *pendingReason {
	out := &pendingReason{
		Reason: fleet.ReasonUnscheduled, Message: "a node fits: the scheduler has not reached it yet",
		Nodes: e.Nodes, Lost: *resource.List(e.Lost), Best: e.Best, source: from,
	}
	if e.Unfit != nil {
		out.Reason, out.Message = e.Unfit.Reason, e.Unfit.Message
	}
	return out
}

// storedPending converts the last record of the scheduler.
func storedPending(i *fleet.Instance, why string) *pendingReason {
	out := &pendingReason{Lost: []fleet.FilterLoss{}, source: source{
		Source: "stored", Note: "the scheduler did not answer, so this is its last record: " + why,
	}}
	out.Reason, out.Message = i.Why()
	if p := i.Pending; p != nil && p.Generation == i.Intent.Generation {
		out.Nodes, out.Lost, out.Revision = p.Nodes, *resource.List(p.Lost), p.FromRevision
	}
	return out
}
