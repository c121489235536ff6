package templates

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// createTemplate creates an empty template.
func (a *API) createTemplate(c *gin.Context) {
	var b struct {
		Name        string `json:"name"`
		Group       string `json:"group"`
		Description string `json:"description"`
		Platform    string `json:"platform"`
	}
	if !server.Bind(c, &b) {
		return
	}
	ref := content.ParseTemplateRef(b.Name)
	if b.Group != "" {
		ref = content.TemplateRef{Group: b.Group, Name: b.Name}
	}
	if !ref.Valid() {
		server.Fail(c, errs.Field("name", "must be 1 to 64 letters, digits, _, - or ., and must not begin with ."))
		return
	}
	if err := content.CheckDescription(b.Description, b.Platform); err != nil {
		server.Fail(c, err)
		return
	}
	if ref.Internal() {
		server.Fail(c, errs.Field("name", "must not be in the group %s, which Orrery uses itself: choose another", ref.Group))
		return
	}
	if server.DryRun(c) {
		if _, ok := a.cfg.Operations.Snapshot().TemplateHeads.Get(ref.String()); ok {
			server.Fail(c, errs.New(errs.AlreadyExists, "template %s already exists: change it or choose another name", ref))
			return
		}
		_, empty, err := content.Manifest{}.Canonical(content.VersionLimits())
		if err != nil {
			server.Fail(c, err)
			return
		}
		sendTemplateDryRun(c, &content.TemplateHead{TemplateRef: ref, Digest: empty, Description: b.Description, Platform: b.Platform, UpdatedAt: a.cfg.Operations.Now()})
		return
	}
	by := server.Asked(c)
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), templateops.TemplateEdit{
		Ref: ref, Action: "template.create",
		Make: func(ctx context.Context) (content.TemplateHead, error) {
			return a.cfg.Templates.Create(ctx, ref, client.Description{Description: &b.Description, Platform: &b.Platform}, by)
		},
	})
	a.sendTemplate(c, http.StatusCreated, head, err)
}

// importTemplate creates a template from a form with its name and an archive.
func (a *API) importTemplate(c *gin.Context) {
	ch := client.Change{Asked: server.Asked(c), DryRun: server.DryRun(c)}
	if ch.DryRun {
		e, err := a.cfg.Templates.CreateOf(c.Request.Context(), ch, c.GetHeader("Content-Type"), c.Request.Body)
		sendDryRun(c, e, err)
		return
	}
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), templateops.TemplateEdit{
		Action: "template.import",
		Make: func(ctx context.Context) (content.TemplateHead, error) {
			e, err := a.cfg.Templates.CreateOf(ctx, ch, c.GetHeader("Content-Type"), c.Request.Body)
			return e.Head, err
		},
	})
	a.sendTemplate(c, http.StatusCreated, head, err)
}

// sendTemplateDryRun answers a dry run with the template before or after the change.
func sendTemplateDryRun(c *gin.Context, h *content.TemplateHead) {
	c.JSON(http.StatusOK, gin.H{"dryRun": true, "template": templateOf(h)})
}

// sendTemplate answers with a template after a change.
func (a *API) sendTemplate(c *gin.Context, status int, head content.TemplateHead, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	shown := &head
	if now, ok := a.cfg.Operations.Snapshot().TemplateHeads.Get(head.TemplateRef.String()); ok {
		shown = now
	}
	server.ETag(c, shown.ModRev)
	c.JSON(status, templateOf(shown))
}

// protectedPrefix begins the names of templates that belong to modules.
const protectedPrefix = "_module-plugins-"

// managed returns the template that a request changes as a whole, and who requests it at which
// revision. ok is false if it answered the request.
func (a *API) managed(c *gin.Context) (h *content.TemplateHead, by client.Asked, ok bool) {
	if h, ok = a.head(c); !ok {
		return h, by, false
	}
	if strings.HasPrefix(h.Name, protectedPrefix) {
		server.Refuse(c, wire.Reply{Status: http.StatusBadRequest, Code: "PROTECTED", Message: "the template belongs to a module: change the module"})
		return h, by, false
	}
	by, ok = asked(c)
	if ok && by.Revision != 0 && by.Revision < h.ModRev { // the view may be behind etcd
		server.Fail(c, a.cfg.Operations.TemplateMoved(h, by.Revision))
		return h, by, false
	}
	return h, by, ok
}

// patchTemplate changes the description and the platform of a template.
func (a *API) patchTemplate(c *gin.Context) {
	var b client.Description
	if !server.Bind(c, &b) {
		return
	}
	h, by, ok := a.managed(c)
	if !ok {
		return
	}
	if server.DryRun(c) {
		var said content.TemplateHead // has only the requested fields: the present ones are not validated again
		next := *h
		for _, to := range []*content.TemplateHead{&said, &next} {
			resource.Set(&to.Description, b.Description)
			resource.Set(&to.Platform, b.Platform)
		}
		if err := content.CheckDescription(said.Description, said.Platform); err != nil {
			server.Fail(c, err)
			return
		}
		sendTemplateDryRun(c, &next)
		return
	}
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), templateops.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.update",
		Make: func(ctx context.Context) (content.TemplateHead, error) {
			return a.cfg.Templates.Describe(ctx, h.TemplateRef, b, by)
		},
	})
	a.sendTemplate(c, http.StatusOK, head, err)
}

// deleteTemplate deletes a template that no group uses.
func (a *API) deleteTemplate(c *gin.Context) {
	h, by, ok := a.managed(c)
	if !ok {
		return
	}
	if err := templateops.TemplateUnused(a.cfg.Operations.Snapshot(), h.TemplateRef); err != nil {
		server.Fail(c, err)
		return
	}
	if server.DryRun(c) {
		sendTemplateDryRun(c, h)
		return
	}
	_, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), templateops.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.delete",
		Make: func(ctx context.Context) (content.TemplateHead, error) {
			return content.TemplateHead{}, a.cfg.Templates.Delete(ctx, h.TemplateRef, by)
		},
	})
	resource.SendDeleted(c, err)
}
