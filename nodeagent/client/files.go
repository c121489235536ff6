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

// Directory is what lies in a directory of an instance.
type Directory struct {
	Entries []FileEntry `json:"entries"` // by name, 1000 at most
	// More is true when there is more than that.
	More bool `json:"more,omitempty"`
}

// FileEntry is a file, a directory, or Other: a link that leads nowhere or out, a pipe.
type FileEntry struct {
	Name  string `json:"name"`
	Dir   bool   `json:"dir,omitempty"`
	Other bool   `json:"other,omitempty"`
	Size  int64  `json:"size"`
	// ModifiedAt is when it was written last; zero where nobody knows.
	ModifiedAt time.Time `json:"modifiedAt,omitzero"`
}

// FileContent is a part of a file, without the values of secrets.
type FileContent struct {
	Text string `json:"text"`
	// Size is the whole file's, in bytes.
	Size int64 `json:"size"`
	// Cut is true when Text is not all of it.
	Cut bool `json:"cut,omitempty"`
	// Binary is true when the file is not text; then there is no Text.
	Binary bool `json:"binary,omitempty"`
}

// Files lists a directory of an instance, "" being its own. NotFound when the node does not
// have the instance. Errors with the field path: NotFound when nothing is there, Invalid when
// it leads out, Conflict when it is no directory. Conflict without it when the instance's
// secrets are not known.
func (c *Client) Files(ctx context.Context, id fleet.InstanceID, path string) (Directory, error) {
	var d Directory
	err := c.call(ctx, http.MethodGet, id, "/files?"+url.Values{"path": {path}}.Encode(), nil, &d)
	return d, errs.Wrap("nodeagent.Files", err)
}

// File reads at most maxBytes (1 MiB at most) of a file's beginning, or with tail of its end.
// Errors as of Files.
func (c *Client) File(ctx context.Context, id fleet.InstanceID, path string, maxBytes int, tail bool) (FileContent, error) {
	q := url.Values{"path": {path}, "maxBytes": {strconv.Itoa(maxBytes)}, "tail": {strconv.FormatBool(tail)}}
	var f FileContent
	err := c.call(ctx, http.MethodGet, id, "/files/content?"+q.Encode(), nil, &f)
	return f, errs.Wrap("nodeagent.File", err)
}
