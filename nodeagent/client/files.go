package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Directory lists a directory of an instance.
type Directory struct {
	Entries []FileEntry `json:"entries"` // by name, at most 1000
	// More is true if there are more entries.
	More bool `json:"more,omitempty"`
}

// FileEntry is a file, a directory, or Other: a broken or outside link, or a pipe.
type FileEntry struct {
	Name  string `json:"name"`
	Dir   bool   `json:"dir,omitempty"`
	Other bool   `json:"other,omitempty"`
	Size  int64  `json:"size"`
	// ModifiedAt is when it was last written; zero if unknown.
	ModifiedAt time.Time `json:"modifiedAt,omitzero"`
	// ETag changes with each change of the file; empty if it is Other.
	ETag string `json:"etag,omitempty"`
}

// FileContent is a part of a file. The values of secrets are hidden.
type FileContent struct {
	Text string `json:"text"`
	// Size is the size of the whole file in bytes.
	Size int64 `json:"size"`
	// Cut is true if Text is only a part of the file.
	Cut bool `json:"cut,omitempty"`
	// Binary is true if the file is not text; Text is empty then.
	Binary bool `json:"binary,omitempty"`
	// ETag changes with each change of the file.
	ETag string `json:"etag,omitempty"`
	// Masked is true if Text hides values.
	Masked bool `json:"masked,omitempty"`
}

// Files lists a directory of an instance; "" is its own. NotFound if the node does not have the
// instance. Errors with the field path: NotFound if it does not exist, Invalid if it leads out
// of the directory, Conflict if it is not a directory. Conflict without a field if the values
// of the instance's secrets are unknown.
func (c *Client) Files(ctx context.Context, id fleet.InstanceID, path string) (Directory, error) {
	var d Directory
	err := c.call(ctx, http.MethodGet, id, "/files?"+url.Values{"path": {path}}.Encode(), nil, &d)
	return d, errs.Wrap("nodeagent.Files", err)
}

// File reads at most maxBytes (up to 1 MiB) from the beginning of a file, or with tail from its
// end. Errors as of Files.
func (c *Client) File(ctx context.Context, id fleet.InstanceID, path string, maxBytes int, tail bool) (FileContent, error) {
	q := url.Values{"path": {path}, "maxBytes": {strconv.Itoa(maxBytes)}, "tail": {strconv.FormatBool(tail)}}
	var f FileContent
	err := c.call(ctx, http.MethodGet, id, "/files/content?"+q.Encode(), nil, &f)
	return f, errs.Wrap("nodeagent.File", err)
}
