package templates

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// templateDraft holds the caller's unpublished changes.
type templateDraft struct {
	// Base is the version that the draft started from. Hash is the digest of its content.
	Base      string                `json:"base"`
	Hash      string                `json:"hash"`
	Edits     int                   `json:"edits"`
	UpdatedAt time.Time             `json:"updatedAt"`
	Files     []resource.FileChange `json:"files"`
	// Truncated is true if more files differ than are listed.
	Truncated bool `json:"truncated"`
}

// draft returns the caller's draft of a template. It returns NotFound if the caller has no draft.
func (a *API) draft(c *gin.Context, ref content.TemplateRef) (d content.TemplateDraft, err error) {
	err = txn.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		d, err = store.Get(ctx, a.cfg.Operations.Store, keys.TemplateDraft(ref, cmp.Or(server.Actor(c).ID, server.Actor(c).User)))
		return err
	})
	if errs.Is(err, errs.NotFound) {
		return d, errs.New(errs.NotFound, "you have no draft of this template: edit the template as a draft first (orrery template edit --draft)")
	}
	return d, err
}

// draftOf returns the digest of the caller's draft, else of the current version.
func (a *API) draftOf(c *gin.Context, h *content.TemplateHead) (digest string, err error) {
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
	c.JSON(http.StatusOK, templateDraft{Base: d.Base, Hash: d.Digest, Edits: d.Edits, UpdatedAt: d.UpdatedAt, Files: resource.FileChangesOf(diff.Changes), Truncated: diff.More})
}

// dropDraft deletes the caller's draft.
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
		sendDryRun(c, client.Edited{Head: content.TemplateHead{Digest: d.Digest}}, err)
		return
	}
	ch := client.Change{Ref: h.TemplateRef, Asked: by}
	_, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), templateops.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.draft.delete",
		Make: func(ctx context.Context) (content.TemplateHead, error) {
			return content.TemplateHead{}, a.cfg.Templates.DropDraft(ctx, ch)
		},
	})
	resource.SendDeleted(c, err)
}

// publishDraft publishes the caller's draft as a version. Without a draft nothing changes.
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
	case err != nil && !errs.Is(err, errs.NotFound): // the draft may have been published just now
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
