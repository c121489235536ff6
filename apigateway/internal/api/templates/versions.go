package templates

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

type templateVersion struct {
	TemplateName string `json:"templateName"`
	Hash         string `json:"hash"`
	Parent       string `json:"parent"`
	SizeBytes    int64  `json:"sizeBytes"`
	Files        int    `json:"files"`
	Author       string `json:"author"`
	Message      string `json:"message"`
	Current      bool   `json:"current"`
	// CreatedAt is when it was first published, PublishedAt when it last became the current
	// version.
	CreatedAt   time.Time `json:"createdAt"`
	PublishedAt time.Time `json:"publishedAt"`
}

// listVersions lists a template's versions as a bare array, the most recently current first.
func (a *API) listVersions(c *gin.Context) {
	h, ok := a.head(c)
	if !ok {
		return
	}
	all, moves, err := a.versions(c.Request.Context(), h.TemplateRef)
	if err != nil {
		server.Fail(c, err)
		return
	}
	last := map[string]content.TemplateMove{}
	for _, m := range moves {
		last[m.Digest] = m
	}
	slices.SortFunc(all, func(x, y content.TemplateVersion) int {
		return cmp.Or(cmp.Compare(last[y.Digest].Number, last[x.Digest].Number), cmp.Compare(y.CreateRev, x.CreateRev))
	})
	sendSome(c, all, func(v content.TemplateVersion) templateVersion {
		published := v.CreatedAt
		if m, moved := last[v.Digest]; moved {
			published = m.At
		}
		return templateVersion{
			TemplateName: h.Short(), Hash: v.Digest, Parent: v.Parent, SizeBytes: v.SizeBytes, Files: v.Files,
			Author: v.Author, Message: v.Message, Current: v.Digest == h.Digest, CreatedAt: v.CreatedAt, PublishedAt: published,
		}
	})
}

// maxBare bounds the length of a bare array.
const maxBare = 5000

// sendSome answers with a bare array: the whole list, or of a long list the part that ?page and
// ?pageSize name. X-Total-Count has the length of the list.
func sendSome[S, T any](c *gin.Context, all []S, show func(S) T) {
	page, ok := server.Number(c, "page", 1)
	if !ok {
		return
	}
	size, ok := server.Number(c, "pageSize", maxBare)
	if !ok {
		return
	}
	size = min(max(size, 1), maxBare)
	from := min(max(page, 1)-1, len(all)/size) * size
	if max(page, 1)-1 > len(all)/size {
		from = len(all)
	}
	part := all[from:min(from+size, len(all))]
	out := make([]T, 0, len(part))
	for _, s := range part {
		out = append(out, show(s))
	}
	c.Header("X-Total-Count", strconv.Itoa(len(all)))
	if from+len(part) < len(all) {
		c.Header("Warning", `299 orrery "the list is incomplete: request the next page"`)
	}
	c.JSON(http.StatusOK, out)
}

// versions returns a template's versions and the moves of its head, oldest first.
func (a *API) versions(ctx context.Context, ref content.TemplateRef) (all []content.TemplateVersion, moves []content.TemplateMove, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) (err error) {
		if all, _, err = store.List(ctx, a.cfg.Operations.Store, keys.TemplateVersions(ref)); err != nil {
			return err
		}
		moves, _, err = store.List(ctx, a.cfg.Operations.Store, keys.TemplateMoves(ref))
		return err
	})
	return all, moves, err
}

// templateMove is a move of a template's head to a version.
type templateMove struct {
	Sequence int64            `json:"sequence"`
	Hash     string           `json:"hash"`
	Previous string           `json:"previous"`
	Kind     content.MoveKind `json:"kind"`
	Author   string           `json:"author"`
	Message  string           `json:"message"`
	At       time.Time        `json:"at"`
}

// templateHistory lists the moves of a template's head, newest first.
func (a *API) templateHistory(c *gin.Context) {
	h, ok := a.head(c)
	if !ok {
		return
	}
	_, moves, err := a.versions(c.Request.Context(), h.TemplateRef)
	if err != nil {
		server.Fail(c, err)
		return
	}
	slices.Reverse(moves)
	server.SendPage(c, moves, resource.MediumPage, func(m content.TemplateMove) templateMove {
		return templateMove{m.Number, m.Digest, m.Previous, m.Kind, m.Author, m.Message, m.At}
	})
}

// deleteVersion deletes a version that is neither current nor in use.
func (a *API) deleteVersion(c *gin.Context) {
	h, ok := a.head(c)
	if !ok {
		return
	}
	hash := strings.ToLower(c.Param("hash"))
	if !versionForm.MatchString(hash) {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "hash", Message: "must be a version's hash"})
		return
	}
	digest, err := a.findVersion(c.Request.Context(), h.TemplateRef, hash)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if digest == h.Digest {
		server.Refuse(c, wire.Reply{
			Status: http.StatusBadRequest, Code: "CURRENT_VERSION", Message: "the version is current: roll back to another version first",
		})
		return
	}
	if server.DryRun(c) {
		sendDryRun(c, client.Edited{Head: content.TemplateHead{Digest: digest}}, nil)
		return
	}
	by := server.Asked(c)
	_, err = a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), templateops.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.version.delete", What: digest,
		Make: func(ctx context.Context) (content.TemplateHead, error) {
			return content.TemplateHead{}, a.cfg.Templates.DeleteVersion(ctx, h.TemplateRef, digest, by)
		},
	})
	switch {
	case errs.Is(err, errs.Conflict):
		server.Refuse(c, wire.Reply{Status: http.StatusConflict, Code: "IN_USE", Message: errs.MessageOf(err)})
	case err != nil:
		server.Fail(c, err)
	default:
		c.Status(http.StatusNoContent)
	}
}

// rollback makes an older version current, by default the previous one.
func (a *API) rollback(c *gin.Context) {
	var b struct {
		Hash string `json:"hash"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	h, ok := a.head(c)
	if !ok {
		return
	}
	by, ok := asked(c)
	if !ok {
		return
	}
	if server.DryRun(c) {
		a.dryRunRollback(c, h, b.Hash)
		return
	}
	restored, err := a.cfg.Operations.EditTemplate(c.Request.Context(), server.Actor(c), templateops.TemplateEdit{
		Ref: h.TemplateRef, Action: "template.rollback",
		Make: func(ctx context.Context) (content.TemplateHead, error) {
			return a.cfg.Templates.Rollback(ctx, h.TemplateRef, b.Hash, by)
		},
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, restored.ModRev)
	c.JSON(http.StatusOK, gin.H{"status": "restored", "hash": restored.Digest})
}

// dryRunRollback answers with what a rollback would change.
func (a *API) dryRunRollback(c *gin.Context, h *content.TemplateHead, hash string) {
	to, err := a.sideOf(c, h, cmp.Or(hash, "previous"))
	var d client.Difference
	if err == nil && len(h.Variables) > 0 {
		var next []content.Variable
		if next, err = a.cfg.Templates.Variables(c.Request.Context(), to); err == nil {
			err = compose.KeepsDefinitions(h.Variables, next, server.Shown(c))
		}
	}
	if err == nil {
		d, err = a.cfg.Templates.Diff(c.Request.Context(), h.Digest, to, "")
	}
	sendDryRun(c, client.Edited{Head: content.TemplateHead{Digest: to}, Changes: d.Changes, More: d.More}, err)
}
