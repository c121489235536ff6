package instances

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/server/bodycache"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// historyLines is how many console lines are shown by default.
	historyLines = 1000
	// maxPattern is the length of the longest search pattern, in bytes.
	maxPattern = 1000
	// prexorCloudPath is the path of instances in PrexorCloud's API.
	prexorCloudPath = "/api/v1/services"
)

// instanceRoutes serve instances under the path base.
func (a *API) instanceRoutes(base string) []server.Route {
	return append(server.AllIn(server.InstanceInPath,
		server.Get(base+"/:id", server.Needs(auth.InstancesView), a.getInstance),
		server.Get(base+"/:id/explain", server.Needs(auth.InstancesView), a.explain),
		server.Get(base+"/:id/metrics", server.Needs(auth.InstancesView), a.metrics(false)),
		server.Get(base+"/:id/proxy-metrics", server.Needs(auth.InstancesView), a.metrics(true)),
		server.Get(base+"/:id/composition", server.Needs(auth.InstancesView), a.composition),
		server.Delete(base+"/:id", server.Needs(auth.InstancesDelete), a.deleteInstance),
		server.Post(base+"/:id/start", server.Needs(auth.GroupsStart), a.startInstance),
		server.Post(base+"/:id/restart", server.Needs(auth.InstancesStop), a.restartInstance),
		server.Post(base+"/:id/stop", server.Needs(auth.InstancesStop), a.stopInstance(false)),
		server.Post(base+"/:id/force-stop", server.Needs(auth.InstancesStop), a.stopInstance(true)),
		server.Post(base+"/:id/freeze", server.Needs(auth.InstancesStop), a.freezeInstance(true)),
		server.Post(base+"/:id/unfreeze", server.Needs(auth.InstancesStop), a.freezeInstance(false)),
		server.Get(base+"/:id/move", server.Needs(auth.InstancesView), a.getMove),
		server.Post(base+"/:id/move", server.Needs(auth.InstancesStop), a.moveInstance).Rehearses(),
		server.Delete(base+"/:id/move", server.Needs(auth.InstancesStop), a.cancelMove).Unconditional().Rehearses(),
		server.Post(base+"/:id/sleep", server.Needs(auth.InstancesStop), a.sleepInstance).Rehearses(),
		server.Post(base+"/:id/wake", server.Needs(auth.GroupsStart), a.wakeInstance).Rehearses(),
		server.Post(base+"/:id/command", server.Needs(auth.InstancesCommand), a.command),
		server.Post(base+"/:id/save-to-template", server.Needs(auth.TemplatesUpdate, auth.InstancesFiles), a.saveToTemplate).Rehearses(),
		server.Get(base+"/:id/console/history", server.Needs(auth.InstancesConsole), a.history).Audits(account.ActionConsoleRead),
		server.Get(base+"/:id/console/output", server.Needs(auth.InstancesConsole), a.output).Audits(account.ActionConsoleRead),
	),
		server.Get(base, server.Needs(auth.InstancesView), a.listInstances).Among(),
		server.Post(base+"/bulk", server.Needs(auth.InstancesView), a.bulk).Rehearses().Among(),
	)
}

// ViewsOn yields the instances in the list of a node, or of all nodes if node is "".
func (a *API) ViewsOn(s *view.Snapshot, node fleet.NodeID) iter.Seq[Instance] {
	now := a.cfg.Operations.Now()
	return func(yield func(Instance) bool) {
		for _, i := range a.shown.listed(s, instanceFilter{node: node}, now) {
			if !yield(InstanceOf(s, i, now)) {
				return
			}
		}
	}
}

func (a *API) listInstances(c *gin.Context) {
	if group := c.Query("group"); wantsBareArray(c, group) {
		f := instanceFilter{group: fleet.GroupName(group)}
		server.SendJSON(c, a.shown.bare(a.cfg.Operations.Snapshot(), f, server.Sight(c, auth.InstancesView), a.cfg.Operations.Now()))
		return
	}
	page, ok := server.PageOf(c, resource.LargePage, pageInstances)
	if !ok {
		return
	}
	f := instanceFilter{group: fleet.GroupName(c.Query("group")), node: fleet.NodeID(c.Query("node")), state: c.Query("state"), all: c.Query("all") == "true"}
	s, now := a.cfg.Operations.Snapshot(), a.cfg.Operations.Now()
	if sees := server.Sight(c, auth.InstancesView); sees != nil {
		server.SendJSON(c, a.shown.pageOf(s, a.shown.seen(s, f, sees, now), page, now))
		return
	}
	server.SendKept(c, a.shown.page(s, f, page, now))
}

// wantsBareArray reports whether the answer must be a bare array. "group info" of PrexorCloud's
// command-line client expects one. It sends no other query parameter and only the default headers
// of Go's HTTP client.
func wantsBareArray(c *gin.Context, group string) bool {
	if group == "" || c.FullPath() != prexorCloudPath || len(c.Request.URL.Query()) != 1 {
		return false
	}
	c.Writer.Header().Add("Vary", "Accept, User-Agent")
	return c.GetHeader("Accept") == "" && strings.HasPrefix(c.GetHeader("User-Agent"), "Go-http-client/")
}

func (a *API) getInstance(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	i, err := a.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, i.Intent.ModRev)
	server.SendJSON(c, a.shownNow(c.Request.Context(), s, i).Append(nil, a.cfg.Operations.Now()))
}

// shownNow shows an instance with live figures, or with the last reported ones if its agent does
// not answer in time.
func (a *API) shownNow(ctx context.Context, s *view.Snapshot, i *fleet.Instance) bodycache.UptimeObject {
	if i.State().Running() {
		if live, err := a.cfg.Operations.Live(ctx, i); err == nil {
			return a.shown.living(s, i, live, a.cfg.Operations.Now())
		}
	}
	return a.shown.of(s, i, a.cfg.Operations.Now())
}

func (a *API) deleteInstance(c *gin.Context) {
	rev, err := server.IfMatch(c)
	if err == nil {
		_, err = a.cfg.Operations.RemoveInstance(c.Request.Context(), server.Actor(c), c.Param("id"), rev)
	}
	resource.SendDeleted(c, err)
}

// stopInstance stops or, with force, kills an instance. If its node is not connected, the stop is
// recorded and the answer says what it waits for.
func (a *API) stopInstance(force bool) gin.HandlerFunc {
	status := "stopping"
	if force {
		status = "force-stopping"
	}
	return func(c *gin.Context) {
		out, err := a.cfg.Operations.StopInstance(c.Request.Context(), server.Actor(c), c.Param("id"), force)
		a.answer(c, out, err, status, "stopped")
	}
}

func (a *API) freezeInstance(frozen bool) gin.HandlerFunc {
	status := "unfrozen"
	if frozen {
		status = "frozen"
	}
	return func(c *gin.Context) {
		out, err := a.cfg.Operations.FreezeInstance(c.Request.Context(), server.Actor(c), c.Param("id"), frozen)
		a.answer(c, out, err, status, "")
	}
}

func (a *API) sleepInstance(c *gin.Context) {
	out, err := a.cfg.Operations.SleepInstance(c.Request.Context(), server.Actor(c), c.Param("id"), server.DryRun(c))
	a.answer(c, out, err, "falling asleep", "")
}

func (a *API) wakeInstance(c *gin.Context) {
	out, err := a.cfg.Operations.WakeInstance(c.Request.Context(), server.Actor(c), c.Param("id"), server.DryRun(c))
	a.answer(c, out, err, "waking", "")
}

func (a *API) startInstance(c *gin.Context) {
	start := a.cfg.Operations.StartInstance
	discards, err := resource.DiscardsData(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if discards {
		start = a.cfg.Operations.StartWithoutData
	}
	out, err := start(c.Request.Context(), server.Actor(c), c.Param("id"))
	if err == nil && out.Changed {
		id := out.Instance.Intent.ID
		if now, ok := AwaitPlacement(c.Request.Context(), a.cfg.Operations.View, id).Instances.Get(id); ok {
			out.Instance = now
		}
	}
	a.answer(c, out, err, "scheduled", "")
}

func (a *API) restartInstance(c *gin.Context) {
	out, err := a.cfg.Operations.RestartInstance(c.Request.Context(), server.Actor(c), c.Param("id"))
	a.answer(c, out, err, "restarting", "")
}

// answer sends the outcome of an operation. done is the status for an instance that had already
// ended, if it differs from status.
func (a *API) answer(c *gin.Context, out instanceops.Outcome, err error, status, done string) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	if done != "" && out.Instance.Terminal() {
		status = done
	}
	body := gin.H{
		"status": status, "changed": out.Changed, "instance": InstanceOf(a.cfg.Operations.Snapshot(), out.Instance, a.cfg.Operations.Now()),
	}
	if out.Waiting != "" {
		body["waitingForNode"] = out.Waiting
		body["message"] = "node " + string(out.Waiting) + " is not connected: the request is recorded and runs when the node reconnects"
	}
	c.JSON(http.StatusOK, body)
}

func (a *API) command(c *gin.Context) {
	var b struct {
		Command *string         `json:"command"`
		Via     instanceops.Via `json:"via"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.Command == nil {
		server.Fail(c, errs.Field("command", "is missing: send the line to write to the console"))
		return
	}
	sent, err := a.cfg.Operations.Command(c.Request.Context(), server.Actor(c), c.Param("id"), *b.Command, b.Via)
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := gin.H{"status": "sent", "via": sent.Via}
	if sent.Via == instanceops.ViaRCON {
		out["answer"], out["incomplete"] = sent.Answer, sent.Incomplete
	}
	c.JSON(http.StatusOK, out)
}

// consoleLine is a line of output. TS is null if no agent saw when it was written.
type consoleLine struct {
	TS   *time.Time `json:"ts"`
	Line string     `json:"line"`
	// Offset is the offset of its first byte.
	Offset int64 `json:"offset"`
}

// history answers with a page of an instance's output: the last ?limit (or ?lines) lines that lie
// before the offset ?before, between the times ?since and ?until, and match ?grep.
func (a *API) history(c *gin.Context) {
	q, ok := historyQuery(c)
	if !ok {
		return
	}
	log, err := a.cfg.Operations.Logs(c.Request.Context(), c.Param("id"), q)
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := make([]consoleLine, 0, len(log.Lines))
	for _, l := range log.Lines {
		line := consoleLine{Line: l.Text, Offset: l.Offset}
		if !l.At.IsZero() {
			line.TS = &l.At
		}
		out = append(out, line)
	}
	c.JSON(http.StatusOK, gin.H{"lines": out, "truncated": log.More, "before": log.Before})
}

// historyQuery reads the query of history. It returns false if it answered the request.
func historyQuery(c *gin.Context) (q client.Query, ok bool) {
	if q.Lines, ok = server.Number(c, "lines", historyLines); !ok {
		return q, false
	}
	if q.Lines, ok = server.Number(c, "limit", q.Lines); !ok {
		return q, false
	}
	before, ok := server.Number(c, "before", 0)
	if !ok {
		return q, false
	}
	q.Before, q.Match = int64(before), c.Query("grep")
	for field, into := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		text := c.Query(field)
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: field, Message: field + " must be a time like 2030-01-31T12:00:00Z"})
			return q, false
		}
		*into = at
	}
	if len(q.Match) > maxPattern {
		server.Fail(c, errs.Field("grep", "must be at most %d bytes, has %d", maxPattern, len(q.Match)))
		return q, false
	}
	return q, true
}

// nextOffset is the header with the offset to read from next.
const nextOffset = "Orrery-Next-Offset"

// output answers with up to ?maxBytes of an instance's output from ?offset on. A client that
// continues at the returned offset gets every byte once, whichever agent and gateway answer.
func (a *API) output(c *gin.Context) {
	offset, ok := server.Number(c, "offset", 0)
	if !ok {
		return
	}
	limit, ok := server.Number(c, "maxBytes", instanceops.MaxOutput)
	if !ok {
		return
	}
	data, next, err := a.cfg.Operations.Output(c.Request.Context(), c.Param("id"), int64(offset), limit)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header(nextOffset, strconv.FormatInt(next, 10))
	c.Data(http.StatusOK, "application/octet-stream", data)
}

// metrics answers with what an instance last reported, as a server or as a proxy.
func (a *API) metrics(proxy bool) gin.HandlerFunc {
	return func(c *gin.Context) {
		i, m, err := a.cfg.Operations.Measured(c.Request.Context(), c.Param("id"), proxy)
		if err != nil {
			server.Fail(c, err)
			return
		}
		out := map[string]any{}
		if err := json.Unmarshal(m.Figures, &out); err != nil {
			server.Fail(c, errs.WrapAs(errs.Internal, "instances.metrics", err))
			return
		}
		out["instanceId"], out["collectedAt"] = i.Intent.Name, m.At
		c.JSON(http.StatusOK, out)
	}
}
