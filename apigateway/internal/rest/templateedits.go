package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// maxMessage is the longest message of a version, in bytes.
const maxMessage = 1 << 10

// changeOf is what a request says of an edit as a whole; with ?rehash=false it is staged
// in the caller's draft. ok is false when the request
// was answered.
func (a *API) changeOf(c *gin.Context, path string) (ch client.Change, ok bool) {
	h, ok := a.head(c)
	if !ok {
		return ch, false
	}
	message := c.Query("message")
	if len(message) > maxMessage {
		server.Fail(c, errs.Field("message", "is longer than %d bytes", maxMessage))
		return ch, false
	}
	match := strings.Trim(strings.TrimPrefix(strings.TrimSpace(c.GetHeader("If-Match")), "W/"), `"`)
	ch = client.Change{
		Ref: h.TemplateRef, Asked: server.Asked(c),
		Message: message, Path: path, IfMatch: match, Draft: c.Query("rehash") == "false",
		DryRun: server.DryRun(c),
	}
	if rev, err := strconv.ParseInt(match, 10, 64); err == nil && rev > 0 && len(match) < hex.EncodedLen(sha256.Size) {
		ch.IfMatch, ch.Revision = "", rev // the whole template's, not a file's
	}
	return ch, true
}

// asked is who asks for a change of a template as a whole or of a draft, and at which
// revision of it. ok is false when the request was answered.
func asked(c *gin.Context) (by client.Asked, ok bool) {
	rev, err := server.IfMatch(c)
	if err != nil {
		server.Fail(c, err)
	}
	by = server.Asked(c)
	by.Revision = rev
	return by, err == nil
}

// edit has a template's files changed; the answer gets the ETag of what came of it. A dry
// run is answered with what it would come to. ok is false when the request was answered.
func (a *API) edit(c *gin.Context, ch client.Change, what string, do func(context.Context) (client.Edited, error)) (done client.Edited, ok bool) {
	if ch.DryRun {
		done, err := do(c.Request.Context())
		rehearsed(c, done, err)
		return done, false
	}
	_, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), operate.TemplateEdit{
		Ref: ch.Ref, Action: editAction(ch), What: what,
		Make: func(ctx context.Context) (_ fleet.TemplateHead, err error) {
			done, err = do(ctx)
			return done.Head, err
		},
	})
	if err != nil {
		server.Fail(c, err)
		return done, false
	}
	if done.Head.ModRev != 0 {
		server.ETag(c, done.Head.ModRev)
	}
	return done, true
}

// rehearsed answers a dry run.
func rehearsed(c *gin.Context, e client.Edited, err error) {
	if err != nil {
		server.Fail(c, operate.Moved(err))
		return
	}
	c.JSON(http.StatusOK, gin.H{"dryRun": true, "hash": e.Head.Digest, "files": fileChangesOf(e.Changes), "truncated": e.More})
}

// editAction is what the audit calls an edit: one that is staged is none of the template yet.
func editAction(ch client.Change) string {
	if ch.Draft {
		return operate.TemplateStaged
	}
	return "template.edit"
}

// putContent writes a file of text.
func (a *API) putContent(c *gin.Context) {
	var b struct {
		Content *string `json:"content"`
	}
	if err := wire.DecodeJSON(c.Request.Body, server.TextLimit, &b); err != nil {
		server.Fail(c, err)
		return
	}
	switch {
	case b.Content == nil:
		server.Fail(c, errs.Field("content", "is missing: what the file is to hold"))
		return
	case len(*b.Content) > maxContent:
		server.Fail(c, errs.New(errs.TooLarge, "the content has %d bytes, and at most %d are written as text: upload the file", len(*b.Content), maxContent))
		return
	}
	path := c.Query("path")
	ch, ok := a.changeOf(c, path)
	if !ok {
		return
	}
	only := c.GetHeader("If-None-Match") != ""
	done, ok := a.edit(c, ch, "write "+path, func(ctx context.Context) (client.Edited, error) {
		done, err := a.cfg.Templates.PutFile(ctx, ch, only, strings.NewReader(*b.Content))
		if only && errs.Is(err, errs.AlreadyExists) {
			err = &operate.MovedError{What: path + " is there already, and If-None-Match: * replaces nothing"}
		}
		return done, err
	})
	if !ok {
		return
	}
	sum := sha256.Sum256([]byte(*b.Content))
	c.Header("ETag", strconv.Quote(hex.EncodeToString(sum[:])))
	c.JSON(http.StatusOK, gin.H{"status": "saved", "path": path, "hash": done.Head.Digest})
}

// makeDirectory makes a directory, and those it lies in.
func (a *API) makeDirectory(c *gin.Context) {
	b := struct {
		Path string `json:"path"`
	}{c.Query("path")}
	if !server.BindOptional(c, &b) {
		return
	}
	a.perform(c, b.Path, client.Op{Op: "mkdir", Path: b.Path}, func(done client.Edited) {
		c.JSON(http.StatusOK, gin.H{"status": "created", "path": b.Path, "hash": done.Head.Digest})
	})
}

// renameFile moves a file, or a directory with all that lies in it.
func (a *API) renameFile(c *gin.Context) {
	var b struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	if !server.Bind(c, &b) {
		return
	}
	a.perform(c, b.From, client.Op{Op: "rename", Path: b.From, To: b.To}, func(done client.Edited) {
		c.JSON(http.StatusOK, gin.H{"status": "renamed", "from": b.From, "to": b.To, "hash": done.Head.Digest})
	})
}

// deleteFile removes a file, or a directory with all that lies in it.
func (a *API) deleteFile(c *gin.Context) {
	path := c.Query("path")
	a.perform(c, path, client.Op{Op: "delete", Path: path}, func(client.Edited) { c.Status(http.StatusNoContent) })
}

// perform performs an operation on the file at a path and has its outcome told.
func (a *API) perform(c *gin.Context, path string, op client.Op, tell func(client.Edited)) {
	ch, ok := a.changeOf(c, path)
	if !ok {
		return
	}
	server.Unhurried(c) // an archive may be large
	done, ok := a.edit(c, ch, op.Op+" "+path, func(ctx context.Context) (client.Edited, error) {
		return a.cfg.Templates.Edit(ctx, ch, op)
	})
	if ok {
		tell(done)
	}
}
