package rest

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// templateDraft is what the caller has staged and not published.
type templateDraft struct {
	// Base is the version it was begun from, Hash that of what is staged.
	Base      string       `json:"base"`
	Hash      string       `json:"hash"`
	Edits     int          `json:"edits"`
	UpdatedAt time.Time    `json:"updatedAt"`
	Files     []fileChange `json:"files"`
	// Truncated says that more files differ than are told.
	Truncated bool `json:"truncated"`
}

// draft is what the caller has staged for a template. NotFound when there is nothing.
func (a *API) draft(c *gin.Context, ref fleet.TemplateRef) (d fleet.TemplateDraft, err error) {
	err = operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		d, err = store.Get(ctx, a.cfg.Store, store.TemplateDraftKey(ref, cmp.Or(server.Actor(c).ID, server.Actor(c).User)))
		return err
	})
	if errs.Is(err, errs.NotFound) {
		return d, errs.New(errs.NotFound, "you have staged nothing for this template: edit it with ?rehash=false first")
	}
	return d, err
}

// draftOf is the digest of what the caller has staged, else the current version's.
func (a *API) draftOf(c *gin.Context, h *fleet.TemplateHead) (digest string, err error) {
	d, err := a.draft(c, h.TemplateRef)
	if errs.Is(err, errs.NotFound) {
		return h.Digest, nil
	}
	return d.Digest, err
}

func (a *API) getDraft(c *gin.Context) {
	h, ok := a.head(c)
	if !ok {
		return
	}
	d, err := a.draft(c, h.TemplateRef)
	var diff client.Difference
	if err == nil {
		diff, err = a.cfg.Templates.Diff(c.Request.Context(), d.Base, d.Digest, "")
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, d.ModRev)
	c.JSON(http.StatusOK, templateDraft{Base: d.Base, Hash: d.Digest, Edits: d.Edits, UpdatedAt: d.UpdatedAt, Files: fileChangesOf(diff.Changes), Truncated: diff.More})
}

// dropDraft forgets what the caller has staged.
func (a *API) dropDraft(c *gin.Context) {
	h, ok := a.head(c)
	if !ok {
		return
	}
	by, ok := asked(c)
	if !ok {
		return
	}
	if server.DryRun(c) {
		d, err := a.draft(c, h.TemplateRef)
		rehearsed(c, client.Edited{Head: fleet.TemplateHead{Digest: d.Digest}}, err)
		return
	}
	ch := client.Change{Ref: h.TemplateRef, Asked: by}
	_, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), operate.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.draft.delete",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			return fleet.TemplateHead{}, a.cfg.Templates.DropDraft(ctx, ch)
		},
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

// publishDraft makes what the caller has staged a version. Without a draft nothing changes.
func (a *API) publishDraft(c *gin.Context) {
	var b struct {
		Message string `json:"message"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	server.Unhurried(c)
	h, ok := a.head(c)
	if !ok {
		return
	}
	if len(b.Message) > maxMessage {
		server.Fail(c, errs.Field("message", "is longer than %d bytes", maxMessage))
		return
	}
	by, ok := asked(c)
	if !ok {
		return
	}
	switch _, err := a.draft(c, h.TemplateRef); {
	case errs.Is(err, errs.NotFound) && by.Revision == 0 && by.Operation == "":
		c.JSON(http.StatusOK, gin.H{"status": "unchanged", "hash": h.Digest})
		return
	case err != nil && !errs.Is(err, errs.NotFound): // what is not there may be what was published just now
		server.Fail(c, err)
		return
	}
	ch := client.Change{Ref: h.TemplateRef, Asked: by, Message: b.Message, DryRun: server.DryRun(c)}
	done, ok := a.edit(c, ch, "publish the draft", func(ctx context.Context) (client.Edited, error) {
		return a.cfg.Templates.PublishDraft(ctx, ch)
	})
	if ok {
		c.JSON(http.StatusOK, gin.H{"status": "published", "hash": done.Head.Digest})
	}
}
