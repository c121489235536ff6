package templates

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// maxMessage is the length of the longest version message, in bytes.
const maxMessage = 1 << 10

// changeOf reads the parameters of an edit. With ?rehash=false the edit goes to the caller's draft.
// It returns false if it answered the request.
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
		ch.IfMatch, ch.Revision = "", rev // it applies to the template, not to a file
	}
	return ch, true
}

// asked returns the author and the required revision of a change of a template or draft. It returns
// false if it answered the request.
func asked(c *gin.Context) (by client.Asked, ok bool) {
	rev, err := server.IfMatch(c)
	if err != nil {
		server.Fail(c, err)
	}
	by = server.Asked(c)
	by.Revision = rev
	return by, err == nil
}

// edit performs an edit and sets the ETag of the result. It answers a dry run itself. It returns
// false if it answered the request.
func (a *API) edit(c *gin.Context, ch client.Change, what string, do func(context.Context) (client.Edited, error)) (done client.Edited, ok bool) {
	if ch.DryRun {
		done, err := do(c.Request.Context())
		sendDryRun(c, done, err)
		return done, false
	}
	_, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), templateops.TemplateEdit{
		Ref: ch.Ref, Action: editAction(ch), What: what,
		Make: func(ctx context.Context) (_ content.TemplateHead, err error) {
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

// sendDryRun answers a dry run of an edit.
func sendDryRun(c *gin.Context, e client.Edited, err error) {
	if err != nil {
		server.Fail(c, templateops.Moved(err))
		return
	}
	c.JSON(http.StatusOK, gin.H{"dryRun": true, "hash": e.Head.Digest, "files": resource.FileChangesOf(e.Changes), "truncated": e.More})
}

// editAction returns the audit action of an edit. Edits of a draft have their own.
func editAction(ch client.Change) string {
	if ch.Draft {
		return templateops.TemplateStaged
	}
	return "template.edit"
}

// putContent writes a text file.
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
		server.Fail(c, errs.Field("content", "is missing: send the text of the file"))
		return
	case len(*b.Content) > maxContent:
		server.Fail(c, errs.New(errs.TooLarge, "the content has %d bytes, the limit for text is %d: upload the file", len(*b.Content), maxContent))
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
			err = &txn.MovedError{What: path + " already exists, and the request is to create it only (If-None-Match): read it, then change it"}
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

// makeDirectory creates a directory and its parents.
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

// renameFile moves a file, or a directory with its content.
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

// deleteFile deletes a file, or a directory with its content.
func (a *API) deleteFile(c *gin.Context) {
	path := c.Query("path")
	a.perform(c, path, client.Op{Op: "delete", Path: path}, func(client.Edited) { c.Status(http.StatusNoContent) })
}

// perform performs an operation on the file at a path, and calls tell with the result.
func (a *API) perform(c *gin.Context, path string, op client.Op, tell func(client.Edited)) {
	ch, ok := a.changeOf(c, path)
	if !ok {
		return
	}
	server.Unhurried(c) // an archive may take long
	done, ok := a.edit(c, ch, op.Op+" "+path, func(ctx context.Context) (client.Edited, error) {
		return a.cfg.Templates.Edit(ctx, ch, op)
	})
	if ok {
		tell(done)
	}
}
