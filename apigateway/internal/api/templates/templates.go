// Package templates serves templates: their versions, files, variables and drafts.
package templates

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
	Templates  *upstream.Templates
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// template is a template in an answer. A template of the group default is named without its group,
// all others "<group>/<name>", with the slash encoded in paths.
type template struct {
	Name        string `json:"name"`
	Group       string `json:"group"`
	Description string `json:"description"`
	Platform    string `json:"platform"`
	Hash        string `json:"hash"`
	SizeBytes   int64  `json:"sizeBytes"`
	Files       int    `json:"files"`
	// Origin is the source that publishes it. It is empty for templates made through the API.
	Origin    string    `json:"origin"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	const all, one = "/api/v1/templates", "/api/v1/templates/:name"
	return []server.Route{
		server.Get(all, server.Needs(auth.TemplatesView), a.listTemplates),
		server.Post(all, server.Needs(auth.TemplatesCreate), a.createTemplate).Rehearses(),
		server.Post(all+"/import", server.Needs(auth.TemplatesCreate), a.importTemplate).Rehearses().Reads(server.Upload),
		server.Post(all+"/sync", server.Needs(auth.TemplatesUpdate), a.syncTemplates).Rehearses(),
		server.Get(one, server.Needs(auth.TemplatesView), a.getTemplate),
		server.Patch(one, server.Needs(auth.TemplatesUpdate), a.patchTemplate).Rehearses(),
		server.Delete(one, server.Needs(auth.TemplatesDelete), a.deleteTemplate).Rehearses(),
		server.Get(one+"/versions", server.Needs(auth.TemplatesView), a.listVersions),
		server.Delete(one+"/versions/:hash", server.Needs(auth.TemplatesDelete), a.deleteVersion).Rehearses().Unconditional(),
		server.Get(one+"/history", server.Needs(auth.TemplatesView), a.templateHistory),
		server.Post(one+"/rollback", server.Needs(auth.TemplatesUpdate), a.rollback).Rehearses().Conditional(),
		server.Get(one+"/files", server.Needs(auth.TemplatesView), a.listFiles),
		server.Delete(one+"/files", server.Needs(auth.TemplatesUpdate), a.deleteFile).Rehearses(),
		server.Get(one+"/files/content", server.Needs(auth.TemplatesView, auth.TemplatesContent), a.fileContent).Audits(account.ActionFileRead),
		server.Put(one+"/files/content", server.Needs(auth.TemplatesUpdate), a.putContent).Rehearses().Makes().Reads(server.Text),
		server.Get(one+"/files/download", server.Needs(auth.TemplatesView, auth.TemplatesContent), a.downloadFile).Audits(account.ActionFileRead),
		server.Post(one+"/files/mkdir", server.Needs(auth.TemplatesUpdate), a.makeDirectory).Rehearses().Conditional(),
		server.Post(one+"/files/rename", server.Needs(auth.TemplatesUpdate), a.renameFile).Rehearses().Conditional(),
		server.Post(one+"/files/upload", server.Needs(auth.TemplatesUpdate), a.uploadFiles).Rehearses().Conditional().Reads(server.Upload),
		server.Post(one+"/files/extract", server.Needs(auth.TemplatesUpdate), a.extractFile).Rehearses().Conditional(),
		server.Get(one+"/export", server.Needs(auth.TemplatesView, auth.TemplatesContent), a.exportTemplate).Audits(account.ActionFileRead),
		server.Get(one+"/search", server.Needs(auth.TemplatesView, auth.TemplatesContent), a.searchFiles).Audits(account.ActionFileRead),
		server.Get(one+"/inheritance", server.Needs(auth.TemplatesView), a.inheritance),
		server.Get(one+"/variables", server.Needs(auth.TemplatesView), a.listVariables),
		server.Put(one+"/variables", server.Needs(auth.TemplatesUpdate), a.putVariables).Rehearses(),
		server.Get(one+"/variables/scan", server.Needs(auth.TemplatesView), a.scanVariables),
		server.Post(one+"/rehash", server.Needs(auth.TemplatesUpdate), a.publishDraft).Rehearses().Conditional(),
		server.Get(one+"/draft", server.Needs(auth.TemplatesUpdate), a.getDraft),
		server.Delete(one+"/draft", server.Needs(auth.TemplatesUpdate), a.dropDraft).Rehearses(),
		server.Get(one+"/diff", server.Needs(auth.TemplatesView), a.diffVersions),
	}
}

func templateOf(h *content.TemplateHead) template {
	return template{
		Name: h.Short(), Group: h.Group, Description: h.Description, Platform: strings.ToUpper(h.Platform), Hash: h.Digest,
		SizeBytes: h.SizeBytes, Files: h.Files, Origin: h.Origin, UpdatedAt: h.UpdatedAt,
	}
}

func (a *API) head(c *gin.Context) (*content.TemplateHead, bool) {
	s, ref := a.cfg.Operations.Snapshot(), content.ParseTemplateRef(c.Param("name"))
	h, err := templateops.Template(s, ref)
	if err != nil {
		server.Fail(c, err)
	}
	return h, err == nil
}

// listTemplates lists templates, filtered by ?platform or by a part ?q of the name. ?all=true
// includes names and groups that begin with _, except internal ones.
func (a *API) listTemplates(c *gin.Context) {
	all, q, platform := c.Query("all") == "true", strings.ToLower(c.Query("q")), c.Query("platform")
	var shown []*content.TemplateHead
	for _, h := range a.cfg.Operations.Snapshot().TemplateHeads.All() {
		switch {
		case h.Internal() || !all && h.Hidden():
		case platform != "" && !strings.EqualFold(h.Platform, platform):
		case strings.Contains(strings.ToLower(h.TemplateRef.String()), q):
			shown = append(shown, h)
		}
	}
	server.SendPage(c, shown, resource.MediumPage, templateOf)
}

func (a *API) getTemplate(c *gin.Context) {
	if h, ok := a.head(c); ok {
		server.ETag(c, h.ModRev)
		c.JSON(http.StatusOK, templateOf(h))
	}
}

// syncTemplates makes nodes fetch the current versions of templates, and reports the result of
// each.
func (a *API) syncTemplates(c *gin.Context) {
	var b struct {
		Pattern string         `json:"pattern"`
		Nodes   []fleet.NodeID `json:"nodes"`
	}
	if !server.Bind(c, &b) {
		return
	}
	server.Unhurried(c)
	report, err := a.cfg.Operations.SyncTemplates(c.Request.Context(), server.Actor(c), templateops.SyncRequest{Pattern: b.Pattern, Nodes: b.Nodes, DryRun: server.DryRun(c)})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, report)
}
