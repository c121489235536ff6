package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// createTemplate makes a template without files.
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
	ref := fleet.ParseTemplateRef(b.Name)
	if b.Group != "" {
		ref = fleet.TemplateRef{Group: b.Group, Name: b.Name}
	}
	if !ref.Valid() {
		server.Fail(c, errs.Field("name", "must be 1 to 64 letters, digits, _ - or . without a . at its beginning"))
		return
	}
	if err := fleet.CheckDescription(b.Description, b.Platform); err != nil {
		server.Fail(c, err)
		return
	}
	if ref.Internal() {
		server.Fail(c, errs.Field("name", "must not be in the group %s, which is Orrery's own: choose another", ref.Group))
		return
	}
	if server.DryRun(c) {
		if _, ok := a.snapshot().TemplateHeads.Get(ref.String()); ok {
			server.Fail(c, errs.New(errs.AlreadyExists, "template %s exists already: change it, or choose another name", ref))
			return
		}
		_, empty, err := fleet.Manifest{}.Canonical(fleet.VersionLimits())
		if err != nil {
			server.Fail(c, err)
			return
		}
		rehearsedWhole(c, &fleet.TemplateHead{TemplateRef: ref, Digest: empty, Description: b.Description, Platform: b.Platform, UpdatedAt: a.cfg.Now().UTC()})
		return
	}
	by := server.Asked(c)
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), operate.TemplateEdit{
		Ref: ref, Action: "template.create",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			return a.cfg.Templates.Create(ctx, ref, client.Description{Description: &b.Description, Platform: &b.Platform}, by)
		},
	})
	a.sendTemplate(c, http.StatusCreated, head, err)
}

// importTemplate makes a template of a form with its name and an archive.
func (a *API) importTemplate(c *gin.Context) {
	ch := client.Change{Asked: server.Asked(c), DryRun: server.DryRun(c)}
	if ch.DryRun {
		e, err := a.cfg.Templates.CreateOf(c.Request.Context(), ch, c.GetHeader("Content-Type"), c.Request.Body)
		rehearsed(c, e, err)
		return
	}
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), operate.TemplateEdit{
		Action: "template.import",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			e, err := a.cfg.Templates.CreateOf(ctx, ch, c.GetHeader("Content-Type"), c.Request.Body)
			return e.Head, err
		},
	})
	a.sendTemplate(c, http.StatusCreated, head, err)
}

// rehearsedWhole answers a dry run with a template as it would be, or was.
func rehearsedWhole(c *gin.Context, h *fleet.TemplateHead) {
	c.JSON(http.StatusOK, gin.H{"dryRun": true, "template": templateOf(h)})
}

// sendTemplate answers with a template as the view has it after a change.
func (a *API) sendTemplate(c *gin.Context, status int, head fleet.TemplateHead, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	shown := &head
	if now, ok := a.snapshot().TemplateHeads.Get(head.TemplateRef.String()); ok {
		shown = now
	}
	server.ETag(c, shown.ModRev)
	c.JSON(status, templateOf(shown))
}

// protectedPrefix begins the names of templates that modules own.
const protectedPrefix = "_module-plugins-"

// managed is the template that a request changes as a whole, and who asks for it at which
// revision. ok is false when the request was answered.
func (a *API) managed(c *gin.Context) (h *fleet.TemplateHead, by client.Asked, ok bool) {
	if h, ok = a.head(c); !ok {
		return h, by, false
	}
	if strings.HasPrefix(h.Name, protectedPrefix) {
		server.Refuse(c, wire.Reply{Status: http.StatusBadRequest, Code: "PROTECTED", Message: "the template belongs to a module: change the module"})
		return h, by, false
	}
	by, ok = asked(c)
	if ok && by.Revision != 0 && by.Revision < h.ModRev { // a view that is behind decides nothing
		server.Fail(c, a.cfg.Operations.TemplateMoved(h, by.Revision))
		return h, by, false
	}
	return h, by, ok
}

// patchTemplate changes what a template says of itself.
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
		var said fleet.TemplateHead // of what it says already nothing is asked
		next := *h
		for _, to := range []*fleet.TemplateHead{&said, &next} {
			set(&to.Description, b.Description)
			set(&to.Platform, b.Platform)
		}
		if err := fleet.CheckDescription(said.Description, said.Platform); err != nil {
			server.Fail(c, err)
			return
		}
		rehearsedWhole(c, &next)
		return
	}
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), operate.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.update",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			return a.cfg.Templates.Describe(ctx, h.TemplateRef, b, by)
		},
	})
	a.sendTemplate(c, http.StatusOK, head, err)
}

// deleteTemplate removes a template that no group names.
func (a *API) deleteTemplate(c *gin.Context) {
	h, by, ok := a.managed(c)
	if !ok {
		return
	}
	if err := operate.TemplateUnused(a.snapshot(), h.TemplateRef); err != nil {
		server.Fail(c, err)
		return
	}
	if server.DryRun(c) {
		rehearsedWhole(c, h)
		return
	}
	_, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), operate.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.delete",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			return fleet.TemplateHead{}, a.cfg.Templates.Delete(ctx, h.TemplateRef, by)
		},
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
