package instances

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/wire"
)

// defaultFileBytes is how much of a file is shown by default.
const defaultFileBytes = 64 << 10

// instanceFileRoutes serve the files of instances.
func (a *API) instanceFileRoutes() (out []server.Route) {
	for _, base := range []string{"/api/v1/services/:id", "/api/v1/instances/:id"} {
		out = append(out, server.AllIn(server.InstanceInPath, server.Under(base,
			server.Get("/files", server.Needs(auth.InstancesFiles), a.listInstanceFiles),
			server.Get("/files/content", server.Needs(auth.InstancesFiles), a.instanceFile).Audits(account.ActionFileRead),
			server.Get("/files/versions", server.Needs(auth.InstancesFiles), a.fileVersions),
			server.Put("/files/content", server.Needs(auth.InstancesFilesWrite), a.putInstanceFile).Reads(server.Text).Rehearses().Makes(),
			server.Post("/files/upload", server.Needs(auth.InstancesFilesWrite), a.uploadInstanceFile).Reads(server.Upload).Conditional().Makes(),
			server.Post("/files/mkdir", server.Needs(auth.InstancesFilesWrite), a.makeInstanceDirectory).Rehearses(),
			server.Post("/files/rename", server.Needs(auth.InstancesFilesWrite), a.renameInstanceFile).Rehearses().Conditional(),
			server.Post("/files/restore", server.Needs(auth.InstancesFilesWrite), a.restoreInstanceFile).Rehearses().Conditional(),
			server.Delete("/files", server.Needs(auth.InstancesFilesWrite), a.deleteInstanceFile).Rehearses(),
		)...)...)
	}
	return out
}

// instanceEntry is a directory entry. It is neither file nor directory if it is a pipe, or a link
// that is broken or leaves the directory.
type instanceEntry struct {
	Name        string     `json:"name"`
	IsDirectory bool       `json:"isDirectory"`
	IsFile      bool       `json:"isFile"`
	Size        int64      `json:"size"`
	ModifiedAt  *time.Time `json:"modifiedAt"` // null if unknown
	ETag        string     `json:"etag,omitempty"`
}

// listInstanceFiles lists the directory ?path of an instance, or its root.
func (a *API) listInstanceFiles(c *gin.Context) {
	d, err := a.cfg.Operations.Files(c.Request.Context(), c.Param("id"), c.Query("path"))
	if err != nil {
		failFile(c, err)
		return
	}
	out := make([]instanceEntry, 0, len(d.Entries))
	for _, e := range d.Entries {
		shown := instanceEntry{Name: e.Name, IsDirectory: e.Dir, IsFile: !e.Dir && !e.Other, Size: e.Size, ETag: e.ETag}
		if !e.ModifiedAt.IsZero() {
			shown.ModifiedAt = &e.ModifiedAt
		}
		out = append(out, shown)
	}
	c.JSON(http.StatusOK, gin.H{"path": c.Query("path"), "entries": out, "truncated": d.More})
}

// instanceFile answers with the first ?maxBytes of a text file, or the last with ?tail.
func (a *API) instanceFile(c *gin.Context) {
	most, ok := server.Number(c, "maxBytes", defaultFileBytes)
	if !ok {
		return
	}
	tail := c.Query("tail")
	switch {
	case c.Query("path") == "":
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "path", Message: "is missing: name a file"})
		return
	case tail != "" && tail != "true" && tail != "false":
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "tail", Message: "must be true or false"})
		return
	}
	f, err := a.cfg.Operations.File(c.Request.Context(), c.Param("id"), c.Query("path"), most, tail == "true")
	switch {
	case err != nil:
		failFile(c, err)
	case f.Binary:
		server.Refuse(c, wire.Reply{Status: http.StatusUnsupportedMediaType, Code: "BINARY_FILE", Message: "the file is not text: open it on its node"})
	default:
		c.Header("Cache-Control", "no-store")
		if f.ETag != "" {
			server.PartETag(c, f.ETag)
		}
		c.JSON(http.StatusOK, gin.H{"path": c.Query("path"), "content": f.Text, "totalSizeBytes": f.Size, "truncated": f.Cut, "masked": f.Masked})
	}
}

// failFile answers with the error codes that clients of these routes know.
func failFile(c *gin.Context, err error) {
	var moved *txn.MovedError
	if errors.As(err, &moved) {
		server.Fail(c, err)
		return
	}
	r := wire.V1.ReplyTo(server.RequestID(c), err)
	path := r.Field == "path"
	switch {
	case r.Kind == errs.NotFound && path:
		r.Code = "FILE_NOT_FOUND"
	case r.Kind == errs.NotFound:
		r.Code = "INSTANCE_NOT_FOUND"
	case r.Kind == errs.Invalid && path:
		r.Status, r.Code = http.StatusBadRequest, "PATH_OUTSIDE_INSTANCE"
	case r.Kind == errs.Conflict && path:
		r.Status, r.Code = http.StatusBadRequest, "NOT_REGULAR_FILE"
	case errors.Is(err, context.DeadlineExceeded):
		r.Code = "TIMEOUT"
	case r.Kind == errs.Unavailable:
		r.Code = "DAEMON_UNREACHABLE"
	}
	_ = c.Error(err) // for the access log
	server.Refuse(c, r)
}
