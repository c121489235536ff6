package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// Stale is the field of a Conflict when IfMatch does not match.
const Stale = "If-Match"

// MaxUpload is the maximum size of a file that is written, in bytes.
const MaxUpload = 512 << 20

// FileWrite says which file to write.
type FileWrite struct {
	Path string
	// IfMatch is the required ETag of the existing file; "*" means any file, "" no condition.
	IfMatch string
	// Only refuses to replace a file.
	Only bool
	// Discard does not keep the previous content.
	Discard bool
	// DryRun only checks the write. The body may be empty.
	DryRun bool
}

// The operations of a FileEdit.
const (
	FileMkdir   = "mkdir"
	FileRename  = "rename"
	FileDelete  = "delete"
	FileRestore = "restore"
)

// FileEdit is one operation on the files of an instance.
type FileEdit struct {
	Op   string `json:"op"`
	Path string `json:"path,omitempty"`
	// To is the new path of a rename. Version is the version that a restore writes back.
	To      string `json:"to,omitempty"`
	Version string `json:"version,omitempty"`
	// IfMatch is the required ETag of the file at Path; for a restore, of the file that it replaces.
	IfMatch string `json:"ifMatch,omitempty"`
	// Discard does not keep the content that the operation removes.
	Discard bool `json:"discard,omitempty"`
	DryRun  bool `json:"dryRun,omitempty"`
}

// FileChange is the result of a change.
type FileChange struct {
	// Path is the changed file; links are resolved.
	Path string `json:"path"`
	// Created is true if there was nothing at the path.
	Created bool `json:"created,omitempty"`
	// Size and ETag are those of the file afterwards.
	Size int64  `json:"size,omitempty"`
	ETag string `json:"etag,omitempty"`
	// Version is the kept previous content; empty for a new file, or after Discard.
	Version string `json:"version,omitempty"`
	// Replaced is true if the templates, when they have this file, replace it at the next start.
	Replaced bool `json:"replaced,omitempty"`
}

// FileVersion is a kept previous content of a file or directory.
type FileVersion struct {
	ID   string `json:"id"`
	Path string `json:"path"`
	Dir  bool   `json:"dir,omitempty"`
	Size int64  `json:"size"`
	// At is when it was replaced or deleted, and Until when the agent removes it at the latest.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	// Op is what removed it from the path: write, delete or restore.
	Op string `json:"op"`
}

// FileVersions lists kept contents, the newest first, at most 200.
type FileVersions struct {
	Versions []FileVersion `json:"versions"`
	More     bool          `json:"more,omitempty"`
}

// WriteFile writes a file of a static instance. It replaces the whole file or nothing. Conflict
// without a field if the instance is dynamic or its secrets would be overwritten, Exhausted if the
// disk is nearly full, TooLarge above MaxUpload. A Conflict with the field Stale if IfMatch does not
// match, AlreadyExists because of Only. Other errors as of Files.
func (c *Client) WriteFile(ctx context.Context, id fleet.InstanceID, w FileWrite, body io.Reader) (FileChange, error) {
	q := url.Values{"path": {w.Path}}
	for name, set := range map[string]bool{"only": w.Only, "discard": w.Discard, "dryRun": w.DryRun} {
		if set {
			q.Set(name, "true")
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.base+"/v1/instances/"+url.PathEscape(string(id))+"/files/content?"+q.Encode(), body)
	if err != nil {
		return FileChange{}, errs.WrapAs(errs.Internal, "nodeagent.WriteFile", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.secret)
	req.Header.Set("Content-Type", "application/octet-stream")
	if w.IfMatch != "" {
		req.Header.Set("If-Match", strconv.Quote(w.IfMatch))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return FileChange{}, errs.Wrap("nodeagent.WriteFile", ctx.Err())
		}
		return FileChange{}, errs.WrapAs(errs.Unavailable, "nodeagent.WriteFile", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return FileChange{}, errs.Wrap("nodeagent.WriteFile", wire.DecodeError(resp))
	}
	var done FileChange
	return done, errs.WrapAs(errs.Unavailable, "nodeagent.WriteFile", json.NewDecoder(resp.Body).Decode(&done))
}

// EditFile performs an operation on the files of a static instance. Errors as of WriteFile;
// AlreadyExists if the new path exists, NotFound with the field version for an unknown version.
func (c *Client) EditFile(ctx context.Context, id fleet.InstanceID, e FileEdit) (FileChange, error) {
	var done FileChange
	err := c.call(ctx, http.MethodPost, id, "/files/edits", e, &done)
	return done, errs.Wrap("nodeagent.EditFile", err)
}

// FileVersions lists the kept previous contents of a path and of all paths below it; "" lists all.
func (c *Client) FileVersions(ctx context.Context, id fleet.InstanceID, path string) (FileVersions, error) {
	var v FileVersions
	err := c.call(ctx, http.MethodGet, id, "/files/versions?"+url.Values{"path": {path}}.Encode(), nil, &v)
	return v, errs.Wrap("nodeagent.FileVersions", err)
}
