package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// HeaderMode is the header with a file's permission bits, in octal.
const HeaderMode = "X-Orrery-Mode"

// HeaderFinal is the header of an error that every replica would return.
const HeaderFinal = "X-Orrery-Final"

// Match is a match of a search.
type Match struct {
	Path string `json:"path"`
	// Line and Column start at 1; the column counts characters. Both are 0 when the file's
	// name matches.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Preview is the line, or the part of a long line around the match.
	Preview string `json:"preview"`
}

// Found is the result of a search.
type Found struct {
	Matches []Match `json:"matches"`
	// Partial is true when the version has more text than one search reads.
	Partial bool `json:"partial,omitempty"`
	// More is true when there may be more matches.
	More bool `json:"more,omitempty"`
}

// Placeholder is a placeholder that a version's files use.
type Placeholder struct {
	Key string `json:"key"`
	// Uses lists the first hundred uses.
	Uses []Use `json:"uses"`
}

// Use is a place in a file.
type Use struct {
	Path string `json:"path"`
	Line int    `json:"line"`
}

// Placeholders are the placeholders that a version's files use, sorted.
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

// Files lists the direct entries of a directory of a version; "" is the template itself.
// With deep, it lists everything below. It omits the chunks of large files. It returns
// NotFound when the version or the directory does not exist, and Malformed when the path is
// not a directory.
func (c *Client) Files(ctx context.Context, digest, dir string, deep bool) ([]content.ManifestEntry, error) {
	q := url.Values{"path": {dir}}
	if deep {
		q.Set("deep", "true")
	}
	var out []content.ManifestEntry
	err := c.callJSON(ctx, http.MethodGet, tree(digest, "", q), nil, &out)
	return out, errs.Wrap("templatesvc.Files", err)
}

// File opens a file of a version. The content is not verified. It returns NotFound when the
// file does not exist, and Malformed when the path is not a file.
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

// Search finds a text in a version's files and file names.
func (c *Client) Search(ctx context.Context, digest, text string, most int) (Found, error) {
	var out Found
	q := url.Values{"q": {text}, "max": {strconv.Itoa(most)}}
	err := c.callJSON(ctx, http.MethodGet, tree(digest, "/search", q), nil, &out)
	return out, errs.Wrap("templatesvc.Search", err)
}

// Placeholders returns the placeholders that a version's files use.
func (c *Client) Placeholders(ctx context.Context, digest string) (Placeholders, error) {
	var out Placeholders
	err := c.callJSON(ctx, http.MethodGet, tree(digest, "/placeholders", nil), nil, &out)
	return out, errs.Wrap("templatesvc.Placeholders", err)
}

// Archive packs a directory of a version as zip, tar, tar.gz or tar.zst. The caller closes
// it; an incomplete archive ends with an error. Archive returns the errors of Files, and
// Invalid for an unknown format.
func (c *Client) Archive(ctx context.Context, digest, dir, format string) (io.ReadCloser, error) {
	return c.archive(ctx, digest, url.Values{"path": {dir}, "format": {format}})
}

// Export packs a version with its variable definitions, so that an import creates an equal
// one. Defaults that a user with the visibility most may not see are omitted. It returns
// the errors of Archive.
func (c *Client) Export(ctx context.Context, digest, format string, most content.Visibility) (io.ReadCloser, error) {
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
