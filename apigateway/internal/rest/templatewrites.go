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
	by := server.Actor(c)
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), by, operate.TemplateEdit{
		Ref: ref, Action: "template.create",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			return a.cfg.Templates.Create(ctx, ref, client.Description{Description: &b.Description, Platform: &b.Platform}, by.User)
		},
	})
	a.sendTemplate(c, http.StatusCreated, head, err)
}

// importTemplate makes a template of a form with its name and an archive.
func (a *API) importTemplate(c *gin.Context) {
	by := server.Actor(c)
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), by, operate.TemplateEdit{
		Action: "template.import",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			return a.cfg.Templates.CreateOf(ctx, by.User, c.GetHeader("Content-Type"), c.Request.Body)
		},
	})
	a.sendTemplate(c, http.StatusCreated, head, err)
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

// managed is the template that a request changes as a whole, at the revision it insists
// on. ok is false when the request was answered.
func (a *API) managed(c *gin.Context) (h *fleet.TemplateHead, base string, ok bool) {
	if h, ok = a.head(c); !ok {
		return h, "", false
	}
	if strings.HasPrefix(h.Name, protectedPrefix) {
		server.Refuse(c, wire.Reply{Status: http.StatusBadRequest, Code: "PROTECTED", Message: "the template belongs to a module: change the module"})
		return h, "", false
	}
	rev, err := server.IfMatch(c)
	switch {
	case err == nil && rev == 0:
		return h, "", true
	case err == nil && rev != h.ModRev:
		err = &operate.MovedError{What: "template " + h.Short(), Want: rev, Have: h.ModRev}
	case err == nil:
		return h, h.Digest, true
	}
	server.Fail(c, err)
	return h, "", false
}

// patchTemplate changes what a template says of itself.
func (a *API) patchTemplate(c *gin.Context) {
	var b client.Description
	if !server.Bind(c, &b) {
		return
	}
	h, base, ok := a.managed(c)
	if !ok {
		return
	}
	by := server.Actor(c)
	head, err := a.cfg.Operations.EditTemplate(c.Request.Context(), by, operate.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.update",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			return a.cfg.Templates.Describe(ctx, h.TemplateRef, b, base, by.User)
		},
	})
	a.sendTemplate(c, http.StatusOK, head, movedIf(base, err))
}

// movedIf makes a conflict of a change that insisted on a version a failed condition.
func movedIf(base string, err error) error {
	if base != "" && errs.Is(err, errs.Conflict) {
		return &operate.MovedError{What: errs.MessageOf(err)}
	}
	return err
}

// deleteTemplate removes a template that no group names.
func (a *API) deleteTemplate(c *gin.Context) {
	h, base, ok := a.managed(c)
	if !ok {
		return
	}
	if err := operate.TemplateUnused(a.snapshot(), h.TemplateRef); err != nil {
		server.Fail(c, err)
		return
	}
	if server.DryRun(c) {
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "template": templateOf(h)})
		return
	}
	by := server.Actor(c)
	_, err := a.cfg.Operations.EditTemplate(c.Request.Context(), by, operate.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.delete",
		Make: func(ctx context.Context) (fleet.TemplateHead, error) {
			return fleet.TemplateHead{}, a.cfg.Templates.Delete(ctx, h.TemplateRef, base, by.User)
		},
	})
	if err = movedIf(base, err); err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
