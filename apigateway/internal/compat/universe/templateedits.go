package universe

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// change returns the change that a request makes to a file of the template in its path.
func (a *API) change(c *gin.Context, path string) (client.Change, error) {
	ref := content.TemplateRef{Group: c.Param("group"), Name: c.Param("name")}
	if !ref.Valid() || ref.Internal() {
		return client.Change{}, errs.New(errs.NotFound, "Template not found")
	}
	return client.Change{
		Ref: ref, Path: path, DryRun: server.DryRun(c), Asked: server.Asked(c),
		IfMatch: strings.Trim(strings.TrimPrefix(strings.TrimSpace(c.GetHeader("If-Match")), "W/"), `"`),
	}, nil
}

// edit calls do to change the file in the path and records the edit. ok is false if edit has already
// sent a response.
func (a *API) edit(c *gin.Context, what string, create bool, do func(context.Context, client.Change) (client.Edited, error)) (path string, ok bool) {
	path, err := filePath(c)
	if err != nil {
		fail(c, err)
		return path, false
	}
	ch, err := a.change(c, path)
	if ch.Create = create; err == nil && ch.DryRun {
		rehearsed(c, func() (client.Edited, error) { return do(c.Request.Context(), ch) })
		return path, false
	}
	if err == nil {
		_, err = a.cfg.Operations.EditTemplate(c.Request.Context(), a.cfg.By(c), templateops.TemplateEdit{
			Ref: ch.Ref, Action: "template.edit", What: what + " " + path,
			Make: func(ctx context.Context) (content.TemplateHead, error) {
				e, err := do(ctx, ch)
				return e.Head, err
			},
		})
	}
	if err != nil {
		fail(c, err)
	}
	return path, err == nil
}

// rehearsed answers a dry run with what would change.
func rehearsed(c *gin.Context, do func() (client.Edited, error)) {
	e, err := do()
	if err != nil {
		fail(c, templateops.Moved(err))
		return
	}
	paths := make([]string, 0, len(e.Changes))
	for _, f := range e.Changes {
		paths = append(paths, f.Path)
	}
	c.JSON(http.StatusOK, gin.H{"dryRun": true, "digest": e.Head.Digest, "files": paths, "truncated": e.More})
}

// patchFile writes a file. It creates a missing file, directory or template.
func (a *API) patchFile(c *gin.Context) {
	path, ok := a.edit(c, "write", true, func(ctx context.Context, ch client.Change) (client.Edited, error) {
		return a.cfg.Templates.PutFile(ctx, ch, false, c.Request.Body)
	})
	if ok {
		c.JSON(http.StatusOK, gin.H{"message": "File updated", "path": path})
	}
}

// postFile creates a file that does not exist yet.
func (a *API) postFile(c *gin.Context) {
	path, ok := a.edit(c, "write", true, func(ctx context.Context, ch client.Change) (client.Edited, error) {
		return a.cfg.Templates.PutFile(ctx, ch, true, c.Request.Body)
	})
	if ok {
		c.JSON(http.StatusCreated, gin.H{"message": "File created", "path": path})
	}
}

func (a *API) deleteFile(c *gin.Context) {
	path, ok := a.edit(c, "delete", false, func(ctx context.Context, ch client.Change) (client.Edited, error) {
		return a.cfg.Templates.Edit(ctx, ch, client.Op{Op: "delete", Path: ch.Path})
	})
	if ok {
		c.JSON(http.StatusOK, gin.H{"message": "File deleted", "path": path})
	}
}

// exportTemplate sends a template as a zip.
func (a *API) exportTemplate(c *gin.Context) {
	h, err := a.template(c)
	if err != nil {
		fail(c, err)
		return
	}
	body, err := a.cfg.Templates.Export(c.Request.Context(), h.Digest, "zip", server.Shown(c))
	if err != nil {
		fail(c, err)
		return
	}
	server.Send(c, server.Transfer{Type: "application/zip", Name: h.Group + "-" + h.Name + ".zip", Size: -1, Body: body})
}

// importTemplate unpacks a zip into a template, which it creates if it is missing. No file is deleted.
func (a *API) importTemplate(c *gin.Context) {
	ch, err := a.change(c, "")
	if ch.Create, ch.IfMatch = true, ""; err == nil && ch.DryRun {
		rehearsed(c, func() (client.Edited, error) {
			return a.cfg.Templates.Import(c.Request.Context(), ch, "zip", c.Request.Body)
		})
		return
	}
	if err == nil {
		_, err = a.cfg.Operations.EditTemplate(c.Request.Context(), a.cfg.By(c), templateops.TemplateEdit{
			Ref: ch.Ref, Action: "template.import",
			Make: func(ctx context.Context) (content.TemplateHead, error) {
				e, err := a.cfg.Templates.Import(ctx, ch, "zip", c.Request.Body)
				return e.Head, err
			},
		})
	}
	if err != nil {
		fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"message": "Template imported", "group": ch.Ref.Group, "name": ch.Ref.Name})
}
