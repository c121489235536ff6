package nodes

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/drain"
	"github.com/orreryhq/orrery/libs/store/view"
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
	// Remaining is how many instances are left, and Players how many players they have.
	Remaining int `json:"remainingInstances"`
	Players   int `json:"players"`
	// Instances are those that are left, in the order in which they may end.
	Instances []drainStep `json:"instances,omitempty"`
	// Stopped are the instances that were stopped for the drain and start again when it is ended.
	Stopped []string `json:"stopped"`
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
	// Blocks is true if the drain waits for the instance until a user does something.
	Blocks bool `json:"blocks"`
}

func stepsOf(all []drain.Step) (out []drainStep, players int) {
	out = make([]drainStep, 0, len(all))
	for _, s := range all {
		players += s.Players
		out = append(out, drainStep{
			ID: s.Instance.Intent.Name, UID: s.Instance.Intent.ID, Group: s.Instance.Intent.Group, Players: s.Players,
			Action: s.Verb, Reason: s.Reason, Message: s.Message, Outlook: s.Outlook(), Blocks: s.Verb == drain.Block,
		})
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
		Shutdown: d.Shutdown, TimeoutSeconds: d.TimeoutSeconds, KickMessage: d.KickMessage, Stopped: names(nodeops.DownOn(s, node)),
	}
	if wishes.Draining() != nil {
		out.State, out.CompletedAt = "DRAINING", nil
		out.Instances, out.Players = stepsOf(nodeops.DrainSteps(s, node, d, a.cfg.Operations.Now()))
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
	shown, players := stepsOf(done.Steps)
	out := gin.H{
		"nodeId": d.Node, "shutdown": set.Shutdown, "drainTimeoutSeconds": set.TimeoutSeconds, "kickMessage": set.KickMessage,
		"instances": shown, "remainingInstances": len(shown), "players": players,
	}
	if d.DryRun {
		out["dryRun"], out["action"] = true, "drain"
	} else {
		out["status"], out["changed"], out["drainId"], out["deadlineAt"] = "DRAINING", done.Changed, set.ID, set.At.Add(set.Timeout())
	}
	c.JSON(http.StatusOK, out)
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
