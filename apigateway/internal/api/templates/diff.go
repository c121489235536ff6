package templates

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// diffVersions lists what changed from version ?from (default: previous) to version ?to (default:
// head). With ?path it also compares the lines of one text file, which requires templates.content.
func (a *API) diffVersions(c *gin.Context) {
	h, ok := a.head(c)
	if !ok {
		return
	}
	if who, _ := server.Identity(c); c.Query("path") != "" && !who.Can(auth.TemplatesContent) {
		server.Fail(c, errs.New(errs.Denied, "%s: compare without path", who.Lacks(auth.TemplatesContent)))
		return
	}
	from, err := a.sideOf(c, h, c.DefaultQuery("from", "previous"))
	var to string
	if err == nil {
		to, err = a.sideOf(c, h, c.DefaultQuery("to", "head"))
	}
	var d client.Difference
	if err == nil {
		d, err = a.cfg.Templates.Diff(c.Request.Context(), from, to, c.Query("path"))
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	if path := c.Query("path"); path != "" {
		if a.diffFile(c, from, to, path, d.Changes) {
			a.cfg.Operations.NoteRead(server.Actor(c), account.ActionFileRead, "template", h.TemplateRef.String(), path)
		}
		return
	}
	c.JSON(http.StatusOK, gin.H{"from": from, "to": to, "files": resource.FileChangesOf(d.Changes), "truncated": d.More})
}

// sideOf returns the digest of the version that asked names.
func (a *API) sideOf(c *gin.Context, h *content.TemplateHead, asked string) (string, error) {
	asked = strings.ToLower(asked)
	switch {
	case asked == "head" || asked == h.Digest:
		return h.Digest, nil
	case asked == "previous":
		_, moves, err := a.versions(c.Request.Context(), h.TemplateRef)
		if err != nil {
			return "", err
		}
		if before := content.PreviousVersion(moves); before != "" {
			return before, nil
		}
		return "", errs.New(errs.NotFound, "the template has no version before the current one: name one of its versions")
	case !versionForm.MatchString(asked):
		return "", &errs.Error{Kind: errs.Malformed, Field: "version", Message: "must be a version's hash, previous or head"}
	}
	return a.findVersion(c.Request.Context(), h.TemplateRef, asked)
}

// diffFile answers with the changed lines of a file. It returns false if it refused the request.
func (a *API) diffFile(c *gin.Context, from, to, path string, changes []content.FileChange) bool {
	old, err := a.textOf(c.Request.Context(), from, path)
	var next []byte
	if err == nil {
		next, err = a.textOf(c.Request.Context(), to, path)
	}
	switch {
	case err != nil:
		server.Fail(c, err)
		return false
	case old == nil && next == nil:
		server.Fail(c, errs.New(errs.NotFound, "neither version has a file %s: omit path to list the changed files", path))
		return false
	case !upstream.Text(old, true) || !upstream.Text(next, true):
		server.Refuse(c, wire.Reply{Status: http.StatusUnsupportedMediaType, Code: "BINARY_FILE", Message: "the file is not text: download both"})
		return false
	}
	c.JSON(http.StatusOK, gin.H{"from": from, "to": to, "files": resource.FileChangesOf(changes), "truncated": false, "unified": unified(path, string(old), string(next))})
	return true
}

// textOf returns a file of a version. It returns nil if the version does not have it.
func (a *API) textOf(ctx context.Context, digest, path string) ([]byte, error) {
	f, err := a.cfg.Templates.File(ctx, digest, path)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Body.Close()
	if f.Size > maxContent {
		return nil, errs.New(errs.TooLarge, "the file has %d bytes, the limit for comparing lines is %d: download it", f.Size, maxContent)
	}
	content, err := io.ReadAll(io.LimitReader(f.Body, maxContent))
	if content == nil {
		content = []byte{}
	}
	return content, errs.WrapAs(errs.Unavailable, "rest.oneText", err)
}
