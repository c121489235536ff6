package instances

import (
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxContent is the size of the largest file that is written as text, in bytes.
const maxContent = 1 << 20

// fileChange describes a change of an instance's files.
type fileChange struct {
	Status string `json:"status"`
	DryRun bool   `json:"dryRun,omitempty"`
	Path   string `json:"path"`
	// From is the old path of a renamed file.
	From    string `json:"from,omitempty"`
	Created bool   `json:"created"`
	// SizeBytes and ETag are those of the file afterwards.
	SizeBytes int64  `json:"sizeBytes"`
	ETag      string `json:"etag,omitempty"`
	// Version is the kept previous content, or null.
	Version *string `json:"version"`
	// ReplacedAtNextStart is true if templates that have the file replace it at the next start.
	ReplacedAtNextStart bool `json:"replacedAtNextStart"`
}

// sendChange answers a change, or its dry run.
func sendChange(c *gin.Context, status string, dryRun bool, from string, done client.FileChange) {
	out := fileChange{
		Status: status, DryRun: dryRun, Path: done.Path, From: from, Created: done.Created, SizeBytes: done.Size, ETag: done.ETag,
		ReplacedAtNextStart: done.Replaced,
	}
	if dryRun {
		out.Status = "checked"
	}
	if done.Version != "" {
		out.Version = &done.Version
	}
	if done.ETag != "" {
		server.PartETag(c, done.ETag)
	}
	c.JSON(http.StatusOK, out)
}

// fileCondition returns the ETag in If-Match; "*" means any file.
func fileCondition(c *gin.Context) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(c.GetHeader("If-Match")), "W/"), `"`)
}

// discards reports whether ?keep=false is set. It returns false for ok after it refused another value.
func discards(c *gin.Context) (discard, ok bool) {
	switch c.Query("keep") {
	case "", "true":
		return false, true
	case "false":
		return true, true
	}
	server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "keep", Message: "must be true or false"})
	return false, false
}

// missing refuses a request without a required value.
func missing(c *gin.Context, field, value string) bool {
	if value == "" {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: field, Message: "is missing: name a path below the instance's directory"})
	}
	return value == ""
}

// putInstanceFile writes the text file ?path.
func (a *API) putInstanceFile(c *gin.Context) {
	var b struct {
		Content *string `json:"content"`
	}
	if err := wire.DecodeJSON(c.Request.Body, server.TextLimit, &b); err != nil {
		server.Fail(c, err)
		return
	}
	switch {
	case missing(c, "path", c.Query("path")):
		return
	case b.Content == nil:
		server.Fail(c, errs.Field("content", "is missing: send the text of the file"))
		return
	case len(*b.Content) > maxContent:
		server.Fail(c, errs.New(errs.TooLarge, "the content has %d bytes, the limit for text is %d: upload the file", len(*b.Content), maxContent))
		return
	}
	a.writeFile(c, "saved", c.Query("path"), strings.NewReader(*b.Content))
}

func (a *API) writeFile(c *gin.Context, status, at string, body io.Reader) {
	discard, ok := discards(c)
	if !ok {
		return
	}
	w := client.FileWrite{
		Path: at, IfMatch: fileCondition(c), Only: c.GetHeader("If-None-Match") != "", Discard: discard, DryRun: server.DryRun(c),
	}
	done, err := a.cfg.Operations.WriteFile(c.Request.Context(), server.Actor(c), c.Param("id"), w, body)
	if w.Only && errs.Is(err, errs.AlreadyExists) {
		err = &txn.MovedError{What: at + " already exists, and the request is to create it only (If-None-Match): read it, then change it"}
	}
	if err != nil {
		failFile(c, err)
		return
	}
	sendChange(c, status, w.DryRun, "", done)
}

// uploadInstanceFile writes the file of a form into the directory ?path. The body is streamed to the
// node's agent.
func (a *API) uploadInstanceFile(c *gin.Context) {
	if c.Query("extract") != "" && c.Query("extract") != "false" {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "extract", Message: "is not possible for files of instances: unpack the archive first, and upload its files"})
		return
	}
	form, err := c.Request.MultipartReader()
	if err != nil {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Message: "the body must be a form with the part file: send it as multipart/form-data", Err: err})
		return
	}
	part, err := nextFile(form)
	if err != nil {
		server.Fail(c, err)
		return
	}
	a.writeFile(c, "uploaded", path.Join(c.Query("path"), part.FileName()), &onlyFile{part, form})
}

// nextFile returns the first part of a form, which must be the file.
func nextFile(form *multipart.Reader) (*multipart.Part, error) {
	part, err := form.NextPart()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, errs.New(errs.TooLarge, "the body is larger than %d bytes: send less at once", large.Limit)
	case err != nil && !errors.Is(err, io.EOF):
		return nil, &errs.Error{Kind: errs.Malformed, Message: "the form did not arrive completely: send it again", Err: err}
	case err != nil, part.FormName() != "file", part.FileName() == "":
		return nil, &errs.Error{Kind: errs.Malformed, Field: "file", Message: "must be the only part of the form, and have a file name"}
	}
	return part, nil
}

// onlyFile reads a part of a form that must be its last one. Otherwise the agent gets no complete file
// and changes nothing.
type onlyFile struct {
	part *multipart.Part
	form *multipart.Reader
}

func (f *onlyFile) Read(p []byte) (int, error) {
	n, err := f.part.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if _, more := f.form.NextPart(); !errors.Is(more, io.EOF) {
		if more == nil {
			more = &errs.Error{Kind: errs.Malformed, Field: "file", Message: "must be the only part of the form: send one file per request"}
		}
		return n, more
	}
	return n, io.EOF
}

// makeInstanceDirectory creates a directory and its parents.
func (a *API) makeInstanceDirectory(c *gin.Context) {
	var b struct {
		Path string `json:"path"`
	}
	if server.Bind(c, &b) && !missing(c, "path", b.Path) {
		a.editFile(c, "created", client.FileEdit{Op: client.FileMkdir, Path: b.Path})
	}
}

// renameInstanceFile moves a file, or a directory with its content.
func (a *API) renameInstanceFile(c *gin.Context) {
	var b struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	if server.Bind(c, &b) && !missing(c, "from", b.From) && !missing(c, "to", b.To) {
		a.editFile(c, "renamed", client.FileEdit{Op: client.FileRename, Path: b.From, To: b.To, IfMatch: fileCondition(c)})
	}
}

// restoreInstanceFile writes a kept content back to its path.
func (a *API) restoreInstanceFile(c *gin.Context) {
	var b struct {
		Version string `json:"version"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.Version == "" {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "version", Message: "is missing: name one of the stored versions of the file (orrery file versions)"})
		return
	}
	if discard, ok := discards(c); ok {
		a.editFile(c, "restored", client.FileEdit{Op: client.FileRestore, Version: b.Version, IfMatch: fileCondition(c), Discard: discard})
	}
}

// deleteInstanceFile deletes a file, or a directory with its content.
func (a *API) deleteInstanceFile(c *gin.Context) {
	if missing(c, "path", c.Query("path")) {
		return
	}
	if discard, ok := discards(c); ok {
		a.editFile(c, "deleted", client.FileEdit{Op: client.FileDelete, Path: c.Query("path"), IfMatch: fileCondition(c), Discard: discard})
	}
}

func (a *API) editFile(c *gin.Context, status string, e client.FileEdit) {
	server.Unhurried(c) // keeping a large directory may take long
	e.DryRun = server.DryRun(c)
	done, err := a.cfg.Operations.EditFile(c.Request.Context(), server.Actor(c), c.Param("id"), e)
	if err != nil {
		failFile(c, err)
		return
	}
	from := ""
	if e.Op == client.FileRename {
		from = e.Path
	}
	sendChange(c, status, e.DryRun, from, done)
}

// fileVersion is a kept previous content of a file or directory.
type fileVersion struct {
	ID          string    `json:"id"`
	Path        string    `json:"path"`
	IsDirectory bool      `json:"isDirectory"`
	SizeBytes   int64     `json:"sizeBytes"`
	At          time.Time `json:"at"`
	Until       time.Time `json:"until"`
	// By is the operation that removed the content from its path.
	By string `json:"by"`
}

// fileVersions lists the kept previous contents of ?path and below it, or of all files.
func (a *API) fileVersions(c *gin.Context) {
	v, err := a.versionsOf(c.Request.Context(), c.Param("id"), c.Query("path"))
	if err != nil {
		failFile(c, err)
		return
	}
	c.JSON(http.StatusOK, v)
}

func (a *API) versionsOf(ctx context.Context, id, at string) (gin.H, error) {
	v, err := a.cfg.Operations.FileVersions(ctx, id, at)
	out := make([]fileVersion, 0, len(v.Versions))
	for _, one := range v.Versions {
		out = append(out, fileVersion{ID: one.ID, Path: one.Path, IsDirectory: one.Dir, SizeBytes: one.Size, At: one.At, Until: one.Until, By: one.Op})
	}
	return gin.H{"path": at, "versions": out, "truncated": v.More}, err
}
