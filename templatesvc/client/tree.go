package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// HeaderMode carries a file's permission bits, in octal.
const HeaderMode = "X-Orrery-Mode"

// HeaderFinal marks an error that no other replica would answer otherwise.
const HeaderFinal = "X-Orrery-Final"

// Match is a place where a search found its text.
type Match struct {
	Path string `json:"path"`
	// Line and Column count from 1, the column in characters; both are 0 when the
	// file's name matches.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Preview is the line, or of a long one the part around the match.
	Preview string `json:"preview"`
}

// Found is what a search came to.
type Found struct {
	Matches []Match `json:"matches"`
	// Partial is true when there was more to look at than one search may.
	Partial bool `json:"partial,omitempty"`
	// More is true when there may be more matches than were asked for.
	More bool `json:"more,omitempty"`
}

// Placeholder is a key that a version's files use.
type Placeholder struct {
	Key string `json:"key"`
	// Uses are where, at most a hundred.
	Uses []Use `json:"uses"`
}

// Use is a place in a file.
type Use struct {
	Path string `json:"path"`
	Line int    `json:"line"`
}

// Placeholders are the keys that a version's files use, in order.
type Placeholders struct {
	Keys    []Placeholder `json:"keys"`
	Partial bool          `json:"partial,omitempty"`
}

// File is an open file of a version. The caller closes its Body.
type File struct {
	Body io.ReadCloser
	// Size is in bytes.
	Size   int64
	SHA256 string
	Mode   uint32
}

// Files lists what lies directly in a directory of a version; "" is the template itself.
// With deep it is everything below. The chunks of large files are not told. NotFound when version or directory do not exist,
// Malformed when the path is no directory's.
func (c *Client) Files(ctx context.Context, digest, dir string, deep bool) ([]fleet.ManifestEntry, error) {
	q := url.Values{"path": {dir}}
	if deep {
		q.Set("deep", "true")
	}
	var out []fleet.ManifestEntry
	err := c.callJSON(ctx, http.MethodGet, tree(digest, "", q), nil, &out)
	return out, errs.Wrap("templatesvc.Files", err)
}

// File opens a file of a version. NotFound when it does not exist, Malformed when the path
// is no file's. What it yields was not verified.
func (c *Client) File(ctx context.Context, digest, path string) (*File, error) {
	resp, err := c.call(ctx, http.MethodGet, tree(digest, "/file", url.Values{"path": {path}}), nil, nil)
	if err != nil {
		return nil, errs.Wrap("templatesvc.File", err)
	}
	f := &File{Body: resp.Body, Size: resp.ContentLength, SHA256: unquoted(resp.Header.Get("ETag"))}
	if mode, err := strconv.ParseUint(resp.Header.Get(HeaderMode), 8, 32); err == nil {
		f.Mode = uint32(mode)
	}
	return f, nil
}

// Search looks for a text in a version's files and their names.
func (c *Client) Search(ctx context.Context, digest, text string, most int) (Found, error) {
	var out Found
	q := url.Values{"q": {text}, "max": {strconv.Itoa(most)}}
	err := c.callJSON(ctx, http.MethodGet, tree(digest, "/search", q), nil, &out)
	return out, errs.Wrap("templatesvc.Search", err)
}

// Placeholders are the keys that a version's files use.
func (c *Client) Placeholders(ctx context.Context, digest string) (Placeholders, error) {
	var out Placeholders
	err := c.callJSON(ctx, http.MethodGet, tree(digest, "/placeholders", nil), nil, &out)
	return out, errs.Wrap("templatesvc.Placeholders", err)
}

// Archive packs what lies in a directory of a version, as zip, tar, tar.gz or tar.zst.
// The caller closes it; an archive that broke off ends with an error. Errors as of Files,
// and Invalid for an unknown format.
func (c *Client) Archive(ctx context.Context, digest, dir, format string) (io.ReadCloser, error) {
	return c.archive(ctx, digest, url.Values{"path": {dir}, "format": {format}})
}

// Export packs a version with the definitions of its variables, so that an import makes an
// equal one. Defaults that are hidden from who is shown most of values are left out. Otherwise as Archive.
func (c *Client) Export(ctx context.Context, digest, format string, most fleet.Visibility) (io.ReadCloser, error) {
	return c.archive(ctx, digest, url.Values{"format": {format}, "shown": {string(most)}})
}

func (c *Client) archive(ctx context.Context, digest string, q url.Values) (io.ReadCloser, error) {
	resp, err := c.call(ctx, http.MethodGet, tree(digest, "/archive", q), nil, nil)
	if err != nil {
		return nil, errs.Wrap("templatesvc.Archive", err)
	}
	return resp.Body, nil
}

func tree(digest, what string, q url.Values) string {
	return "/v1/trees/" + url.PathEscape(digest) + what + "?" + q.Encode()
}

func unquoted(etag string) string {
	if s, err := strconv.Unquote(etag); err == nil {
		return s
	}
	return etag
}
