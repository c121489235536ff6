package rest

import (
	"context"
	"net/http"
	"slices"
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
	Name        string    `json:"name"`
	Group       string    `json:"group"`
	Description string    `json:"description"`
	Platform    string    `json:"platform"`
	Hash        string    `json:"hash"`
	SizeBytes   int64     `json:"sizeBytes"`
	UpdatedAt   time.Time `json:"updatedAt"`
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

// maxSizes bounds the sizes remembered.
const maxSizes = 10_000

func (a *API) templateOf(ctx context.Context, h *fleet.TemplateHead) template {
	return template{
		Name: h.Short(), Group: h.Group, Description: h.Description, Hash: h.Digest,
		SizeBytes: a.sizeOf(ctx, h), UpdatedAt: h.UpdatedAt,
	}
}

// sizeOf is the size of the current version, 0 when it cannot be read now.
func (a *API) sizeOf(ctx context.Context, h *fleet.TemplateHead) int64 {
	key := h.TemplateRef.String() + "@" + h.Digest
	a.sizes.mu.Lock()
	size, known := a.sizes.by[key]
	a.sizes.mu.Unlock()
	if known {
		return size
	}
	v, err := store.Get(ctx, a.cfg.Store, store.TemplateVersionKey(h.TemplateRef, h.Digest))
	if err != nil {
		return 0
	}
	a.sizes.mu.Lock()
	defer a.sizes.mu.Unlock()
	if len(a.sizes.by) >= maxSizes {
		clear(a.sizes.by)
	}
	a.sizes.by[key] = v.SizeBytes
	return v.SizeBytes
}

func (a *API) head(c *gin.Context) (*fleet.TemplateHead, bool) {
	h, ok := a.snapshot().TemplateHeads.Get(fleet.ParseTemplateRef(c.Param("name")).String())
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no such template"))
	}
	return h, ok
}

func (a *API) listTemplates(c *gin.Context) {
	var all []*fleet.TemplateHead
	for _, h := range a.snapshot().TemplateHeads.All() {
		all = append(all, h)
	}
	_ = operate.InTime(c.Request.Context(), func(ctx context.Context) error { // sizes that cannot be read in time are 0
		server.SendPage(c, all, pageSome, func(h *fleet.TemplateHead) template { return a.templateOf(ctx, h) })
		return nil
	})
}

func (a *API) getTemplate(c *gin.Context) {
	if h, ok := a.head(c); ok {
		server.ETag(c, h.ModRev)
		_ = operate.InTime(c.Request.Context(), func(ctx context.Context) error { // as in listTemplates
			c.JSON(http.StatusOK, a.templateOf(ctx, h))
			return nil
		})
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
