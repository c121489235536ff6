package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// MovedKind is the kind of an entry of a directory that moves.
type MovedKind string

// The kinds. Sockets are left out, because they belong to a process.
const (
	MovedFile MovedKind = "file"
	MovedDir  MovedKind = "dir"
	MovedLink MovedKind = "link"
	MovedPipe MovedKind = "pipe"
)

// MovedEntry is a file, directory, link or pipe in the directory of an instance that moves.
type MovedEntry struct {
	// Path is relative to the directory, which is "." itself.
	Path string    `json:"path"`
	Kind MovedKind `json:"kind"`
	// Mode are the permission bits and the setuid, setgid and sticky bits, as in fs.FileMode.
	Mode uint32 `json:"mode"`
	// Size and SHA256, in hex, are those of a file.
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Target is the target of a link.
	Target string `json:"target,omitempty"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	// ModifiedNanos is when it was last written, in nanoseconds since 1970.
	ModifiedNanos int64 `json:"modifiedNanos"`
}

// MovedLine is a line of the list of a directory that moves: an entry, a sign of progress, or the end. A
// list without an end is incomplete.
type MovedLine struct {
	*MovedEntry
	// Hashed is the number of bytes that are hashed so far, also of files that are not listed yet. A
	// sign of progress has nothing else.
	Hashed int64     `json:"hashed,omitempty"`
	End    *MovedEnd `json:"end,omitempty"`
}

// MovedEnd is the end of a list.
type MovedEnd struct {
	// Entries is the number of entries.
	Entries int `json:"entries"`
	// Absent is true if the directory does not exist: the instance was never built.
	Absent bool `json:"absent,omitempty"`
	// Error says why the directory cannot be moved, until a user changes it. It is empty otherwise.
	Error string `json:"error,omitempty"`
}

// MovedList opens the list of the directory of an instance that moves: one MovedLine as JSON per
// line. The caller closes it. Conflict if the agent does not serve that move now.
func (c *Client) MovedList(ctx context.Context, id fleet.InstanceID, move string) (io.ReadCloser, error) {
	body, err := c.moved(ctx, id, "list", url.Values{"move": {move}})
	return body, errs.Wrap("nodeagent.MovedList", err)
}

// MovedFile opens a file of it from an offset on. The caller closes it. Conflict if the agent does
// not serve that move now, NotFound if the file does not exist.
func (c *Client) MovedFile(ctx context.Context, id fleet.InstanceID, move, path string, offset int64) (io.ReadCloser, error) {
	body, err := c.moved(ctx, id, "file", url.Values{"move": {move}, "path": {path}, "offset": {strconv.FormatInt(offset, 10)}})
	return body, errs.Wrap("nodeagent.MovedFile", err)
}

func (c *Client) moved(ctx context.Context, id fleet.InstanceID, what string, q url.Values) (io.ReadCloser, error) {
	resp, err := wire.Send(ctx, c.http, wire.Request{
		Method: http.MethodGet, Token: c.secret, URL: c.base + "/v1/moves/" + url.PathEscape(string(id)) + "/" + what + "?" + q.Encode(),
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
