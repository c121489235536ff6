package universe

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Bounds of ?lines=.
const (
	defaultLines = 100
	maxLines     = instanceops.MaxLogLines
)

const noConfiguration = "Configuration not found"

func (a *API) listInstances(c *gin.Context) {
	s := a.snapshot()
	if sees := server.Sight(c, auth.InstancesView); sees != nil {
		server.SendJSON(c, a.instances.encode(s, c.Query("all") == "true", sees, a.cfg.Now()))
		return
	}
	server.SendKept(c, a.instances.list(s, listedFor{all: c.Query("all") == "true", own: server.OwnGroup(c)}, a.cfg.Now()))
}

func (a *API) getInstance(c *gin.Context) {
	s, i, err := a.instance(c)
	if err == nil && !sightOf(s, server.OwnGroup(c))(i.Intent.Group) {
		err = errs.New(errs.Denied, "instance %s shares no network with this instance", i.Intent.ID)
	}
	if err != nil {
		fail(c, err)
		return
	}
	out := InstanceOf(s, i, a.cfg.Now())
	if i.State().Running() {
		if live, err := a.cfg.Operations.Live(c.Request.Context(), i); err == nil {
			out.addReport(live.Report)
		}
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) createInstance(c *gin.Context) {
	var b struct {
		ConfigurationName string `json:"configurationName"`
	}
	if err := Body(c, &b); err != nil {
		fail(c, err)
		return
	}
	if b.ConfigurationName == "" {
		fail(c, &errs.Error{Kind: errs.Malformed, Field: "configurationName", Message: "configurationName is missing: name the configuration to start"})
		return
	}
	if sees := server.Sight(c, auth.GroupsStart); sees != nil && !sees(fleet.GroupName(b.ConfigurationName)) {
		refuse(c, http.StatusBadRequest, noConfiguration)
		return
	}
	made, _, err := a.cfg.Operations.StartInstances(c.Request.Context(), a.cfg.By(c), instanceops.StartRequest{
		Group: fleet.GroupName(b.ConfigurationName), Count: 1, StaticOnce: true,
	})
	if err != nil {
		failWithoutConfiguration(c, err)
		return
	}
	s := a.snapshot()
	i, ok := s.Instances.Get(made[0].ID)
	if !ok { // already stopped and deleted
		fail(c, errs.New(errs.NotFound, "Instance not found"))
		return
	}
	c.JSON(http.StatusCreated, InstanceOf(s, i, a.cfg.Now()))
}

// failWithoutConfiguration sends an error. A missing configuration is a 400, because the body names it,
// not the path.
func failWithoutConfiguration(c *gin.Context, err error) {
	if errs.Is(err, errs.NotFound) {
		refuse(c, http.StatusBadRequest, noConfiguration)
		return
	}
	fail(c, err)
}

func (a *API) stopInstance(c *gin.Context) {
	_, i, err := a.instance(c)
	if err == nil {
		_, err = a.cfg.Operations.StopInstance(c.Request.Context(), a.cfg.By(c), string(i.Intent.ID), false)
	}
	if err != nil {
		fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"message": "Instance " + string(i.Intent.ID) + " stopped", "instanceId": i.Intent.ID})
}

// lifecycle starts, stops, restarts, freezes or unfreezes an instance. The instance keeps its ID.
func (a *API) lifecycle(c *gin.Context) {
	_, i, err := a.instance(c)
	if err != nil {
		fail(c, err)
		return
	}
	var (
		do   func(context.Context, txn.Actor, string) (instanceops.Outcome, error)
		done string
	)
	switch strings.ToLower(c.Query("target")) {
	case "start":
		do, done = a.cfg.Operations.StartInstance, "started"
	case "restart":
		do, done = a.cfg.Operations.RestartInstance, "restarted"
	case "freeze", "unfreeze":
		frozen := strings.EqualFold(c.Query("target"), "freeze")
		do = func(ctx context.Context, by txn.Actor, ref string) (instanceops.Outcome, error) {
			return a.cfg.Operations.FreezeInstance(ctx, by, ref, frozen)
		}
		if done = "unfrozen"; frozen {
			done = "frozen"
		}
	case "stop":
		a.stopInstance(c)
		return
	default:
		refuse(c, http.StatusBadRequest, "target must be start, stop, restart, freeze or unfreeze")
		return
	}
	out, err := do(c.Request.Context(), a.cfg.By(c), string(i.Intent.ID))
	if err != nil {
		failWithoutConfiguration(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{
		"message": "Instance " + string(i.Intent.ID) + " " + done, "instance": InstanceOf(a.snapshot(), out.Instance, a.cfg.Now()),
	})
}

func (a *API) execute(c *gin.Context) {
	_, i, err := a.instance(c)
	if err != nil {
		fail(c, err)
		return
	}
	var b struct {
		Command *string         `json:"command"`
		Via     instanceops.Via `json:"via"`
	}
	if err := Body(c, &b); err != nil {
		fail(c, err)
		return
	}
	if b.Command == nil {
		fail(c, &errs.Error{Kind: errs.Malformed, Field: "command", Message: "command is missing: send the line to write to the console"})
		return
	}
	sent, err := a.cfg.Operations.Command(c.Request.Context(), a.cfg.By(c), string(i.Intent.ID), *b.Command, b.Via)
	if err != nil {
		fail(c, err)
		return
	}
	out := gin.H{"message": "Command sent to " + string(i.Intent.ID)}
	if sent.Via == instanceops.ViaRCON {
		out["answer"], out["incomplete"] = sent.Answer, sent.Incomplete
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) logs(c *gin.Context) {
	_, i, err := a.instance(c)
	if err != nil {
		fail(c, err)
		return
	}
	wanted := linesWanted(c.Query("lines"))
	log, err := a.cfg.Operations.Logs(c.Request.Context(), string(i.Intent.ID), client.Query{Lines: wanted, Count: true})
	if err != nil {
		fail(c, err)
		return
	}
	lines := make([]string, 0, len(log.Lines))
	for _, l := range log.Lines {
		lines = append(lines, l.Text)
	}
	c.JSON(http.StatusOK, gin.H{
		"instanceId": i.Intent.ID, "lines": lines, "totalLines": log.Total, "requestedLines": wanted,
	})
}

// linesWanted parses ?lines=. It returns the default if s is not a number and limits the rest to 1 to
// maxLines.
func linesWanted(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return defaultLines
	}
	return min(max(n, 1), maxLines)
}
