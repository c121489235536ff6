package universe

import (
	"cmp"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// syncTemplates copies the templates that match a pattern to the nodes and reports the result for each.
func (a *API) syncTemplates(c *gin.Context) {
	var b struct {
		Pattern    string       `json:"pattern"`
		TargetNode fleet.NodeID `json:"targetNode"`
	}
	if err := Body(c, &b); err != nil {
		fail(c, err)
		return
	}
	q := templateops.SyncRequest{Pattern: b.Pattern, DryRun: server.DryRun(c)}
	if b.TargetNode != "" {
		q.Nodes = []fleet.NodeID{b.TargetNode}
	}
	server.Unhurried(c)
	report, err := a.cfg.Operations.SyncTemplates(c.Request.Context(), a.cfg.By(c), q)
	switch {
	case errs.Is(err, errs.Invalid) && errs.FieldOf(err) != "pattern":
		fail(c, errs.New(errs.NotFound, "Node not found"))
	case errs.Is(err, errs.Invalid):
		refuse(c, http.StatusBadRequest, "pattern "+errs.MessageOf(err))
	case err != nil:
		fail(c, err)
	default:
		c.JSON(http.StatusOK, report)
	}
}

// syncTemplate syncs one template. If the body names a source as storage, it schedules a sync of that
// source. Otherwise it copies the template to all nodes.
func (a *API) syncTemplate(c *gin.Context) {
	var b struct {
		Storage string `json:"storage"`
	}
	if c.Request.ContentLength != 0 {
		if err := Body(c, &b); err != nil {
			fail(c, err)
			return
		}
	}
	ref := content.TemplateRef{Group: c.Param("group"), Name: c.Param("name")}
	storage := cmp.Or(b.Storage, localStorage)
	answer := gin.H{"group": ref.Group, "name": ref.Name, "storage": storage}
	if storage != localStorage {
		a.syncFrom(c, storage, answer)
		return
	}
	if !ref.Valid() { // it could match other templates as a pattern
		fail(c, templateops.NoTemplate(a.snapshot(), ref))
		return
	}
	server.Unhurried(c)
	q := templateops.SyncRequest{Pattern: ref.String(), DryRun: server.DryRun(c)}
	report, err := a.cfg.Operations.SyncTemplates(c.Request.Context(), a.cfg.By(c), q)
	if err == nil && len(report.Templates) == 0 {
		err = templateops.NoTemplate(a.snapshot(), ref)
	}
	if err != nil {
		fail(c, err)
		return
	}
	answer["message"], answer["status"], answer["templates"], answer["nodes"] = report.Message, report.Status, report.Templates, report.Nodes
	c.JSON(http.StatusOK, answer)
}

// syncFrom schedules a sync of a template source.
func (a *API) syncFrom(c *gin.Context, source string, answer gin.H) {
	var err error
	if server.DryRun(c) {
		_, err = a.cfg.Sources.Get(c.Request.Context(), source)
	} else {
		err = a.cfg.Sources.Sync(c.Request.Context(), a.cfg.By(c), source, "")
	}
	switch {
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.Invalid), errs.Is(err, errs.Malformed):
		refuse(c, http.StatusBadRequest, "Unknown storage provider: use local, or the name of a source of templates")
	case err != nil:
		fail(c, err)
	default:
		answer["message"] = "Source " + source + " is being read"
		c.JSON(http.StatusOK, answer)
	}
}
