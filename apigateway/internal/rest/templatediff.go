package rest

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// fileChange is a file that differs between two versions.
type fileChange struct {
	Path    string           `json:"path"`
	Change  fleet.ChangeKind `json:"change"`
	OldHash string           `json:"oldHash"`
	NewHash string           `json:"newHash"`
	OldSize int64            `json:"oldSize"`
	NewSize int64            `json:"newSize"`
}

func fileChangesOf(changes []fleet.FileChange) []fileChange {
	out := make([]fileChange, 0, len(changes))
	for _, c := range changes {
		f := fileChange{Path: c.Path, Change: c.Change}
		if c.Old != nil {
			f.OldHash, f.OldSize = c.Old.SHA256, c.Old.Size
		}
		if c.New != nil {
			f.NewHash, f.NewSize = c.New.SHA256, c.New.Size
		}
		out = append(out, f)
	}
	return out
}

// diffVersions tells what differs from the version ?from to ?to: hashes, or previous,
// which is the default of from, and head, which is that of to. With ?path it also tells
// the lines of one file of text, which takes templates.content.
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
			a.cfg.Operations.NoteRead(server.Actor(c), fleet.ActionFileRead, "template", h.TemplateRef.String(), path)
		}
		return
	}
	c.JSON(http.StatusOK, gin.H{"from": from, "to": to, "files": fileChangesOf(d.Changes), "truncated": d.More})
}

// sideOf is the version that one side of a difference names.
func (a *API) sideOf(c *gin.Context, h *fleet.TemplateHead, asked string) (string, error) {
	asked = strings.ToLower(asked)
	switch {
	case asked == "head" || asked == h.Digest:
		return h.Digest, nil
	case asked == "previous":
		_, moves, err := a.versions(c.Request.Context(), h.TemplateRef)
		if err != nil {
			return "", err
		}
		if before := fleet.PreviousVersion(moves); before != "" {
			return before, nil
		}
		return "", errs.New(errs.NotFound, "the template has no version before the current one: name one of its versions")
	case !versionForm.MatchString(asked):
		return "", &errs.Error{Kind: errs.Malformed, Field: "version", Message: "must be a version's hash, previous or head"}
	}
	return a.findVersion(c.Request.Context(), h.TemplateRef, asked)
}

// diffFile tells the lines of one file that differ. false when it refused.
func (a *API) diffFile(c *gin.Context, from, to, path string, changes []fleet.FileChange) bool {
	old, err := a.oneText(c.Request.Context(), from, path)
	var next []byte
	if err == nil {
		next, err = a.oneText(c.Request.Context(), to, path)
	}
	switch {
	case err != nil:
		server.Fail(c, err)
		return false
	case old == nil && next == nil:
		server.Fail(c, errs.New(errs.NotFound, "neither version has a file %s: list what differs without path", path))
		return false
	case !upstream.Text(old, true) || !upstream.Text(next, true):
		server.Refuse(c, wire.Reply{Status: http.StatusUnsupportedMediaType, Code: "BINARY_FILE", Message: "the file is not text: download both"})
		return false
	}
	c.JSON(http.StatusOK, gin.H{"from": from, "to": to, "files": fileChangesOf(changes), "truncated": false, "unified": unified(path, string(old), string(next))})
	return true
}

// oneText is a small file of a version, nil when it has none there.
func (a *API) oneText(ctx context.Context, digest, path string) ([]byte, error) {
	f, err := a.cfg.Templates.File(ctx, digest, path)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Body.Close()
	if f.Size > maxContent {
		return nil, errs.New(errs.TooLarge, "the file has %d bytes, and lines are compared of at most %d: download it", f.Size, maxContent)
	}
	content, err := io.ReadAll(io.LimitReader(f.Body, maxContent))
	if content == nil {
		content = []byte{}
	}
	return content, errs.As(errs.Unavailable, "rest.oneText", err)
}
