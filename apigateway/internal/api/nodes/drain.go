package nodes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/moveops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/drain"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/client"
)

// nodeDrain is the drain of a node in an answer.
type nodeDrain struct {
	ID string `json:"id"`
	// State is DRAINING or COMPLETED.
	State          string     `json:"state"`
	RequestedBy    string     `json:"requestedBy"`
	RequestedAt    time.Time  `json:"requestedAt"`
	DeadlineAt     time.Time  `json:"deadlineAt"`
	CompletedAt    *time.Time `json:"completedAt"`
	Shutdown       bool       `json:"shutdown"`
	TimeoutSeconds int        `json:"drainTimeoutSeconds"`
	KickMessage    string     `json:"kickMessage"`
	MoveStatic     bool       `json:"moveStatic"`
	// Remaining is how many instances are left, and Players how many players they have.
	Remaining int `json:"remainingInstances"`
	Players   int `json:"players"`
	// Instances are those that are left, in the order in which they may end.
	Instances []drainStep `json:"instances,omitempty"`
	// Stopped are the instances that were stopped for the drain and start again when it is ended.
	Stopped []string `json:"stopped"`
	// Moves are those of static instances for the drain, in the order in which they began.
	Moves []drainMove `json:"moves"`
}

// drainMove is the move of a static instance for a drain.
type drainMove struct {
	ID    string           `json:"id"`
	UID   fleet.InstanceID `json:"uid"`
	Group fleet.GroupName  `json:"group"`
	drainTarget
}

// drainTarget is where an instance moves, and how far that is.
type drainTarget struct {
	To fleet.NodeID `json:"to"`
	// Step is empty before the move begins.
	Step move.Step `json:"step"`
	// Reason and Message say why it failed or waits, or that it cannot move.
	Reason     fleet.Reason `json:"reason"`
	Message    string       `json:"message"`
	BytesDone  int64        `json:"bytesDone"`
	BytesTotal int64        `json:"bytesTotal"`
}

// targetOf shows a move with its copy, which may be nil.
func targetOf(m *move.Move, c *move.Copy) drainTarget {
	t := drainTarget{To: m.Target, Step: m.Step, Reason: m.Reason, Message: m.Detail, BytesDone: m.Bytes, BytesTotal: m.Bytes}
	if c = c.Of(m); c != nil && m.Step != move.Stopping {
		t.BytesDone, t.BytesTotal = c.BytesDone, c.BytesTotal
		if m.Active() && c.Message != "" {
			t.Reason, t.Message = c.Reason, c.Message
		}
	}
	return t
}

func movesOf(s *view.Snapshot, node fleet.NodeID, d fleet.NodeDrain) []drainMove {
	out := []drainMove{}
	if !d.MoveStatic {
		return out
	}
	for _, m := range moveops.OfDrain(s, node, d.ID) {
		_, c := s.Move(m.Instance)
		out = append(out, drainMove{ID: m.Name, UID: m.Instance, Group: m.Group, drainTarget: targetOf(m, c)})
	}
	return out
}

// drainStep is what a drain does to an instance.
type drainStep struct {
	ID      string           `json:"id"`
	UID     fleet.InstanceID `json:"uid"`
	Group   fleet.GroupName  `json:"group"`
	Players int              `json:"players"`
	Action  drain.Verb       `json:"action"`
	Reason  fleet.Reason     `json:"reason"`
	Message string           `json:"message"`
	// Outlook says what will happen to it.
	Outlook string `json:"outlook"`
	// Unplaced is true in a dry run if no other node takes the replacement now. Outlook says why.
	Unplaced bool `json:"unplaced,omitempty"`
	// Blocks is true if the drain waits for the instance until a user does something.
	Blocks bool `json:"blocks"`
	// Move is where the drain moves the instance. It is absent if it does not, or does not know yet.
	Move *drainTarget `json:"move,omitempty"`
}

func stepsOf(s *view.Snapshot, all []drain.Step) (out []drainStep, players int) {
	out = make([]drainStep, 0, len(all))
	for _, step := range all {
		players += step.Players
		i := step.Instance.Intent
		shown := drainStep{
			ID: i.Name, UID: i.ID, Group: i.Group, Players: step.Players,
			Action: step.Verb, Reason: step.Reason, Message: step.Message, Outlook: step.Outlook(), Blocks: step.Verb == drain.Block,
		}
		if step.Move != nil {
			_, c := s.Move(i.ID)
			to := targetOf(step.Move, c)
			shown.Move = &to
		}
		out = append(out, shown)
	}
	return out, players
}

// drainOf shows the drain of a node, nil without one.
func (a *API) drainOf(s *view.Snapshot, node fleet.NodeID) *nodeDrain {
	wishes, _ := s.NodesDesired.Get(node)
	if wishes == nil || wishes.Drain == nil {
		return nil
	}
	d := *wishes.Drain
	out := &nodeDrain{
		ID: d.ID, State: "COMPLETED", RequestedBy: d.By, RequestedAt: d.At, DeadlineAt: d.At.Add(d.Timeout()), CompletedAt: &d.CompletedAt,
		Shutdown: d.Shutdown, TimeoutSeconds: d.TimeoutSeconds, KickMessage: d.KickMessage, MoveStatic: d.MoveStatic,
		Stopped: names(nodeops.DownOn(s, node)), Moves: movesOf(s, node, d),
	}
	if wishes.Draining() != nil {
		out.State, out.CompletedAt = "DRAINING", nil
		out.Instances, out.Players = stepsOf(s, nodeops.DrainSteps(s, node, d, a.cfg.Operations.Now()))
		out.Remaining = len(out.Instances)
	}
	return out
}

func names(all []*fleet.Instance) []string {
	out := make([]string, 0, len(all))
	for _, i := range all {
		out = append(out, i.Intent.Name)
	}
	return out
}

// drainFields are the settings of a drain in a request. An absent one has its default.
type drainFields struct {
	Shutdown    *bool   `json:"shutdown"`
	Timeout     *int    `json:"timeout"`
	KickMessage *string `json:"kickMessage"`
	MoveStatic  *bool   `json:"moveStatic"`
}

// readDrain reads the settings of a drain from the body and the query. It has answered if ok is
// false.
func readDrain(c *gin.Context) (d nodeops.NodeDrain, ok bool) {
	var b drainFields
	if !server.BindOptional(c, &b) {
		return d, false
	}
	err := fromQuery(c, "shutdown", &b.Shutdown, strconv.ParseBool, "must be true or false")
	if err == nil {
		err = fromQuery(c, "timeout", &b.Timeout, strconv.Atoi, "must be a whole number of seconds")
	}
	if err == nil {
		err = fromQuery(c, "kickMessage", &b.KickMessage, func(text string) (string, error) { return text, nil }, "")
	}
	if err == nil {
		err = fromQuery(c, "moveStatic", &b.MoveStatic, strconv.ParseBool, "must be true or false")
	}
	if err != nil {
		server.Fail(c, err)
		return d, false
	}
	d = b.drain()
	d.Node, d.DryRun = fleet.NodeID(c.Param("id")), server.DryRun(c)
	return d, true
}

// drain returns the settings with their defaults.
func (b drainFields) drain() nodeops.NodeDrain {
	d := nodeops.NodeDrain{TimeoutSeconds: fleet.DefaultDrainSeconds, Shutdown: true}
	if b.Shutdown != nil {
		d.Shutdown = *b.Shutdown
	}
	if b.Timeout != nil {
		d.TimeoutSeconds = *b.Timeout
	}
	if b.KickMessage != nil {
		d.KickMessage = *b.KickMessage
	}
	if b.MoveStatic != nil {
		d.MoveStatic = *b.MoveStatic
	}
	return d
}

// fromQuery sets a field from the query. It returns Malformed if the value cannot be read, or if the
// body has the field too.
func fromQuery[T any](c *gin.Context, name string, into **T, read func(string) (T, error), must string) error {
	text, there := c.GetQuery(name)
	if !there {
		return nil
	}
	if *into != nil {
		return &errs.Error{Kind: errs.Malformed, Field: name, Message: "is in the query and in the body: send it once"}
	}
	v, err := read(text)
	if err != nil {
		return &errs.Error{Kind: errs.Malformed, Field: name, Message: must}
	}
	*into = &v
	return nil
}

// drain begins to empty a node.
func (a *API) drain(c *gin.Context) {
	d, ok := readDrain(c)
	if !ok {
		return
	}
	done, err := a.cfg.Operations.Drain(c.Request.Context(), server.Actor(c), d)
	if err != nil {
		server.Fail(c, err)
		return
	}
	set := done.Drain
	shown, players := stepsOf(a.cfg.Operations.Snapshot(), done.Steps)
	out := gin.H{
		"nodeId": d.Node, "shutdown": set.Shutdown, "drainTimeoutSeconds": set.TimeoutSeconds, "kickMessage": set.KickMessage, "moveStatic": set.MoveStatic,
		"instances": shown, "remainingInstances": len(shown), "players": players,
	}
	if d.DryRun {
		out["dryRun"], out["action"], out["notes"] = true, "drain", a.markUnplaced(c, d, shown)
	} else {
		out["status"], out["changed"], out["drainId"], out["deadlineAt"] = "DRAINING", done.Changed, set.ID, set.At.Add(set.Timeout())
	}
	c.JSON(http.StatusOK, out)
}

// simulationTime bounds how long a dry run waits for the scheduler.
const simulationTime = 3 * time.Second

// markUnplaced asks the scheduler where the replacements would run, and marks the instances whose
// replacement has no room. It returns notes about what is not known.
func (a *API) markUnplaced(c *gin.Context, d nodeops.NodeDrain, steps []drainStep) []string {
	if !slices.ContainsFunc(steps, func(s drainStep) bool { return s.Action == drain.Wait }) {
		return []string{}
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), simulationTime)
	defer cancel()
	q := client.Question{Drain: &client.DrainQuestion{Node: d.Node, MoveStatic: d.MoveStatic}}
	sim, _, err := a.cfg.Schedulers.Simulate(ctx, q)
	if err != nil {
		return []string{"cannot predict where the replacements would run: " + errs.MessageOf(err)}
	}
	waiting := map[string]string{}
	for _, o := range sim.Instances {
		if o.Effect == client.EffectPending && o.Replaces != "" {
			waiting[o.Replaces] = o.Message
		}
	}
	for n := range steps {
		s := &steps[n]
		if why, ok := waiting[s.ID]; ok && s.Action == drain.Wait {
			s.Unplaced = true
			s.Outlook = fmt.Sprintf("no other node takes its replacement now: %s. Later its players are moved, and it is stopped after the timeout at the latest", why)
		}
	}
	return []string{}
}

// undrain ends the drain of a node.
func (a *API) undrain(c *gin.Context) {
	node, dry := fleet.NodeID(c.Param("id")), server.DryRun(c)
	back, rev, err := a.cfg.Operations.Undrain(c.Request.Context(), server.Actor(c), node, dry)
	switch {
	case err != nil:
		server.Fail(c, err)
	case dry:
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "action": "undrain", "nodeId": node, "start": names(back.Start), "stay": names(back.Stay)})
	default:
		c.JSON(http.StatusOK, gin.H{"nodeId": node, "status": "ONLINE", "changed": back.Changed, "revision": rev, "start": names(back.Start), "stay": names(back.Stay)})
	}
}
