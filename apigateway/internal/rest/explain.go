package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/client"
)

// explanation is the whole chain of reasons of an instance.
type explanation struct {
	ID         string           `json:"id"`
	UID        fleet.InstanceID `json:"uid"`
	Group      fleet.GroupName  `json:"group"`
	Generation int64            `json:"generation"`
	State      string           `json:"state"`
	Reason     string           `json:"reason"`
	Message    string           `json:"message"`
	// Revision is the one of the records shown.
	Revision int64 `json:"revision"`
	// Chain is how it came to its state, oldest first.
	Chain []link `json:"chain"`
	// Pending is there while it waits for a node, Placement when it has or had one.
	Pending   *pendingWhy   `json:"pending,omitempty"`
	Placement *placementWhy `json:"placement,omitempty"`
}

// link is one step of the chain: what happened, by which rule, who was behind it,
// and the revision of the record that says so.
type link struct {
	Step     step         `json:"step"`
	Reason   fleet.Reason `json:"reason"`
	Message  string       `json:"message"`
	By       string       `json:"by,omitempty"`
	At       *time.Time   `json:"at,omitempty"`
	Revision int64        `json:"revision"`
	// GroupRevision is the revision of the group's spec it was planned from.
	GroupRevision int64        `json:"groupRevision,omitempty"`
	Node          fleet.NodeID `json:"node,omitempty"`
	Exit          *fleet.Exit  `json:"exit,omitempty"`
	// Instance is the other instance of a replacement, or the one that makes room.
	Instance fleet.InstanceID `json:"instance,omitempty"`
}

// step is what a link tells of.
type step string

// The steps.
const (
	stepWanted   step = "wanted"   // the generation was asked for
	stepReplaces step = "replaces" // it was made for another
	stepWaits    step = "waits"    // it has no node
	stepRoom     step = "room"     // another is to make room for it
	stepPlaced   step = "placed"   // a node was chosen
	stepStop     step = "stop"     // it was asked to stop
	stepOrdered  step = "ordered"  // its node was told
	stepState    step = "state"    // its agent says so
	stepReplaced step = "replaced" // another took its place
	stepPaused   step = "paused"   // nothing takes its place while its group is paused
)

// pendingWhy is why it waits.
type pendingWhy struct {
	Reason  fleet.Reason       `json:"reason"`
	Message string             `json:"message"`
	Nodes   int                `json:"nodes"`
	Lost    []fleet.FilterLoss `json:"lost"`
	source
	// Best are nodes that could take it now: its turn has not come yet.
	Best []client.Candidate `json:"best,omitempty"`
}

// placementWhy is why it is where it is.
type placementWhy struct {
	Node  fleet.NodeID   `json:"node"`
	Port  int            `json:"port"`
	Ports map[string]int `json:"ports,omitempty"`
	At    time.Time      `json:"at"`
	// Score are the parts of the score as they were when it was placed, FromRevision
	// the revision of the state that was decided from.
	Score        map[string]float64 `json:"score,omitempty"`
	FromRevision int64              `json:"fromRevision,omitempty"`
	// Now is how the nodes would be judged now if it were not there; absent when
	// that cannot be told.
	Now *nowWhy `json:"now,omitempty"`
}

// nowWhy is the judgement of this moment.
type nowWhy struct {
	source
	// Here is its own node, Best those that would be chosen first.
	Here  *client.Candidate  `json:"here,omitempty"`
	Best  []client.Candidate `json:"best"`
	Nodes int                `json:"nodes"`
	Lost  []fleet.FilterLoss `json:"lost"`
}

// source is where a judgement comes from.
type source struct {
	// Source is "live" for the scheduler's answer of this moment, "stored" for what it last wrote.
	Source string `json:"source"`
	// Scheduler is the replica that answered; empty when stored.
	Scheduler string `json:"scheduler,omitempty"`
	// Revision is the revision of the state it was judged from; 0 when not known.
	Revision int64 `json:"revision"`
	// Note says why there is no live answer.
	Note string `json:"note,omitempty"`
}

// explain builds the chain of reasons from the records, and asks the scheduler
// about this moment.
func (a *API) explain(c *gin.Context) {
	s := a.snapshot()
	i, err := a.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	reason, message := i.Why()
	out := explanation{
		ID: i.Intent.Name, UID: i.Intent.ID, Group: i.Intent.Group, Generation: i.Intent.Generation,
		State: StateOf(i.State()), Reason: string(reason), Message: message, Revision: s.Rev, Chain: append(chainOf(s, i), pausedFor(s, i, a.cfg.Now())...),
	}
	if i.State() == fleet.Offline {
		out.Reason = reasonNodeLost
	}
	a.addScheduler(c.Request.Context(), &out, i)
	c.JSON(http.StatusOK, out)
}

// addScheduler adds why it waits or is where it is.
func (a *API) addScheduler(ctx context.Context, out *explanation, i *fleet.Instance) {
	if p := i.Placement; p != nil {
		out.Placement = &placementWhy{
			Node: p.Node, Port: p.Port, Ports: p.Ports, At: p.PlacedAt, Score: p.Score.Parts(), FromRevision: p.FromRevision,
		}
	}
	waits := i.NeedsPlacement()
	if !waits && !i.HoldsNode() {
		return
	}
	e, replica, err := a.cfg.Schedulers.Explain(ctx, i)
	if err == nil && e.Generation != i.Intent.Generation {
		err = errs.New(errs.Conflict, "it changed meanwhile: ask again")
	}
	live := source{Source: "live", Scheduler: replica, Revision: e.Revision}
	switch {
	case waits && err != nil:
		out.Pending = storedPending(i, errs.MessageOf(err))
	case waits:
		out.Pending = livePending(e, live)
	case err == nil:
		out.Placement.Now = &nowWhy{source: live, Here: e.Here, Best: *list(e.Best), Nodes: e.Nodes, Lost: *list(e.Lost)}
	}
}

// livePending is what the scheduler says at this moment.
func livePending(e client.Explanation, from source) *pendingWhy {
	out := &pendingWhy{
		Reason: fleet.ReasonUnscheduled, Message: "a node can take it: its turn has not come yet",
		Nodes: e.Nodes, Lost: *list(e.Lost), Best: e.Best, source: from,
	}
	if e.Unfit != nil {
		out.Reason, out.Message = e.Unfit.Reason, e.Unfit.Message
	}
	return out
}

// storedPending is what the scheduler last wrote.
func storedPending(i *fleet.Instance, why string) *pendingWhy {
	out := &pendingWhy{Lost: []fleet.FilterLoss{}, source: source{
		Source: "stored", Note: "the scheduler did not answer for this moment, so this is what was last written: " + why,
	}}
	out.Reason, out.Message = i.Why()
	if p := i.Pending; p != nil && p.Generation == i.Intent.Generation {
		out.Nodes, out.Lost, out.Revision = p.Nodes, *list(p.Lost), p.FromRevision
	}
	return out
}
