package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// template is a template as this dialect shows it. One of the group default goes
// by its name alone, others by "<group>/<name>", in paths with the slash encoded.
type template struct {
	Name        string `json:"name"`
	Group       string `json:"group"`
	Description string `json:"description"`
	Platform    string `json:"platform"`
	Hash        string `json:"hash"`
	SizeBytes   int64  `json:"sizeBytes"`
	Files       int    `json:"files"`
	// Origin is the source it is published from; empty when it was made through the API.
	Origin    string    `json:"origin"`
	UpdatedAt time.Time `json:"updatedAt"`
}

type templateVersion struct {
	TemplateName string    `json:"templateName"`
	Hash         string    `json:"hash"`
	Parent       string    `json:"parent"`
	SizeBytes    int64     `json:"sizeBytes"`
	Files        int       `json:"files"`
	Author       string    `json:"author"`
	Message      string    `json:"message"`
	Current      bool      `json:"current"`
	CreatedAt    time.Time `json:"createdAt"`
}

func templateOf(h *fleet.TemplateHead) template {
	return template{
		Name: h.Short(), Group: h.Group, Description: h.Description, Platform: h.Platform, Hash: h.Digest,
		SizeBytes: h.SizeBytes, Files: h.Files, Origin: h.Origin, UpdatedAt: h.UpdatedAt,
	}
}

func (a *API) head(c *gin.Context) (*fleet.TemplateHead, bool) {
	h, ok := a.snapshot().TemplateHeads.Get(fleet.ParseTemplateRef(c.Param("name")).String())
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such template"))
	}
	return h, ok
}

// listTemplates shows templates by name: those of a ?platform, or whose name holds ?q.
// Names that begin with _ are shown to who asks for ?all=true.
func (a *API) listTemplates(c *gin.Context) {
	all, q, platform := c.Query("all") == "true", strings.ToLower(c.Query("q")), c.Query("platform")
	var shown []*fleet.TemplateHead
	for _, h := range a.snapshot().TemplateHeads.All() {
		switch {
		case !all && strings.HasPrefix(h.Name, "_"):
		case platform != "" && !strings.EqualFold(h.Platform, platform):
		case strings.Contains(strings.ToLower(h.TemplateRef.String()), q):
			shown = append(shown, h)
		}
	}
	server.SendPage(c, shown, pageSome, templateOf)
}

func (a *API) getTemplate(c *gin.Context) {
	if h, ok := a.head(c); ok {
		server.ETag(c, h.ModRev)
		c.JSON(http.StatusOK, templateOf(h))
	}
}

// listVersions are a template's versions as a bare array, newest first.
func (a *API) listVersions(c *gin.Context) {
	h, ok := a.head(c)
	if !ok {
		return
	}
	var all []fleet.TemplateVersion
	err := operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		all, _, err = store.List(ctx, a.cfg.Store, store.TemplateVersions(h.TemplateRef))
		return err
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	slices.SortFunc(all, func(x, y fleet.TemplateVersion) int { return int(y.CreateRev - x.CreateRev) })
	out := make([]templateVersion, 0, len(all))
	for _, v := range all {
		out = append(out, templateVersion{
			TemplateName: h.Short(), Hash: v.Digest, Parent: v.Parent, SizeBytes: v.SizeBytes, Files: v.Files,
			Author: v.Author, Message: v.Message, Current: v.Digest == h.Digest, CreatedAt: v.CreatedAt,
		})
	}
	c.JSON(http.StatusOK, out)
}

// rollback makes an older version the current one; without a hash the one before.
func (a *API) rollback(c *gin.Context) {
	var b struct {
		Hash string `json:"hash"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	h, ok := a.head(c)
	if !ok {
		return
	}
	ctx, by := c.Request.Context(), server.Actor(c)
	restored, err := a.cfg.Templates.Rollback(ctx, h.TemplateRef, b.Hash, by.User)
	if err == nil { // also makes the view catch up with the new head
		_, err = a.cfg.Operations.Record(ctx, by, "template.rollback", "template", h.TemplateRef.String(), "to "+restored.Digest)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "restored", "hash": restored.Digest})
}

func (a *API) mountTemplates(r gin.IRoutes) {
	r.GET("/api/v1/templates", a.listTemplates)
	r.GET("/api/v1/templates/:name", a.getTemplate)
	r.GET("/api/v1/templates/:name/versions", a.listVersions)
	r.POST("/api/v1/templates/:name/rollback", a.rollback)
	r.GET("/api/v1/templates/:name/files", a.listFiles)
	r.GET("/api/v1/templates/:name/files/content", a.fileContent)
	r.GET("/api/v1/templates/:name/files/download", a.downloadFile)
	r.GET("/api/v1/templates/:name/search", a.searchFiles)
	r.GET("/api/v1/templates/:name/inheritance", a.inheritance)
	r.GET("/api/v1/templates/:name/variables/scan", a.scanVariables)
}
