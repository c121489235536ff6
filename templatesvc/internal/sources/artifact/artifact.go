// Package artifact downloads a template from a URL.
//
//	sha256   downloads once and accepts only this hash
//	hashUrl  downloads when the hash at that URL changes and accepts only this hash
//	neither  downloads when the server's ETag or Last-Modified changes; always without both
//
// Invariants: Only an answer 200 is read. If a hash is known, a file with another hash is
// never stored.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// Fetch downloads the artifact unless it is unchanged. It returns Invalid when the hash is
// wrong or the file is not an archive, Unavailable when the download fails, and TooLarge
// beyond an archive's limits.
func Fetch(ctx context.Context, r sources.Request) (*sources.Holding, error) {
	want := digest{sha256Name, r.Source.SHA256}
	if r.Source.HashURL != "" {
		var err error
		if want, err = published(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.Seen != "" && r.Seen == want.revision() {
		return nil, nil
	}
	f, err := os.CreateTemp(r.Spool, "artifact-*")
	if err != nil {
		return nil, diskerror.Error("artifact.Fetch", err)
	}
	done := func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	revision, err := download(ctx, r, want, f)
	if err != nil || revision == r.Seen {
		done()
		return nil, err
	}
	read := func(ctx context.Context, add sources.Add) (content.Manifest, error) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return content.Manifest{}, errs.WrapAs(errs.Unavailable, "artifact.Fetch", err)
		}
		if r.Source.File != "" {
			return single(r.Source.File, f, add)
		}
		o := archive.Options{Limits: archive.DefaultLimits(), Spool: r.Spool}
		return archive.Collect(ctx, f, o, add)
	}
	return &sources.Holding{
		Revision: revision, Templates: []sources.Template{{Ref: r.Source.Template, Manifest: read}}, Close: done,
	}, nil
}

// single returns the manifest of a template with one file.
func single(name string, r io.Reader, add sources.Add) (content.Manifest, error) {
	c, err := add(r, archive.DefaultLimits().TotalBytes)
	return content.Manifest{Entries: []content.ManifestEntry{
		{Path: name, Mode: 0o644, Size: c.Size, SHA256: c.SHA256, Chunks: c.Chunks},
	}}, err
}

const server = "the artifact's server"

// get requests a URL. It sends the token only to the host of the artifact.
func get(ctx context.Context, client *http.Client, r sources.Request, url string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, errs.Field("url", "is not a URL")
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if r.Credentials.Token != "" && sameHost(url, r.Source.URL) {
		req.Header.Set("Authorization", "Bearer "+r.Credentials.Token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, sources.Unreachable(server, err)
	}
	return resp, nil
}

// download writes the file to to, checks its hash and returns its revision. If the server
// answers that the file is unchanged, that is the previous revision.
func download(ctx context.Context, r sources.Request, want digest, to io.Writer) (revision string, err error) {
	client := r.Dialer.Client()
	defer client.CloseIdleConnections()
	followed := want.sum == ""
	var header http.Header
	if followed {
		header = unlessChanged(r.Seen)
	}
	resp, err := get(ctx, client, r, r.Source.URL, header)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if len(header) > 0 && resp.StatusCode == http.StatusNotModified {
		return r.Seen, nil
	}
	if resp.StatusCode != http.StatusOK {
		return "", errs.New(errs.Unavailable, "%s answers %s: look at the URL and the token", server, resp.Status)
	}
	contentType := resp.Header.Get("Content-Type")
	if followed && isPage(contentType) && !strings.Contains(r.Source.File, ".htm") {
		return "", errs.Field("url", "answers with a web page (%s), not with a file: correct the url, or give the page's hash as sha256", contentType)
	}
	limit := archive.DefaultLimits().TotalBytes
	content, checked := sha256.New(), want.hash()
	n, err := io.Copy(io.MultiWriter(to, content, checked), io.LimitReader(resp.Body, limit+1))
	sum, got := hex.EncodeToString(content.Sum(nil)), hex.EncodeToString(checked.Sum(nil))
	switch {
	case diskerror.Is(err):
		return "", diskerror.Error("artifact.Fetch", err)
	case err != nil:
		return "", sources.Unreachable(server, err)
	case n > limit:
		return "", errs.New(errs.TooLarge, "the artifact is larger than %d MiB: split it", limit>>20)
	case followed:
		return sum + validator(resp, r.Source.URL), nil
	case got == want.sum:
		return want.revision(), nil
	}
	kind := ""
	if contentType != "" {
		kind = " (" + contentType + ")"
	}
	if r.Source.HashURL != "" {
		return "", errs.Field("hashUrl", "has %s %s, but the file at url has %s%s: the next look tries again, since both may be changing", want.name, want.sum, got, kind)
	}
	return "", errs.Field("sha256", "expected %s, got %s%s: if the artifact was changed on purpose, give its new hash", want.sum, got, kind)
}

// isPage reports whether an answer is a web page, such as an error page.
func isPage(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "text/html" || media == "application/xhtml+xml")
}

// These words precede the validator in a revision.
const (
	byETag = " etag "
	byTime = " modified "
)

const (
	// maxETag is the maximum length of an ETag in a revision, in bytes.
	maxETag = 128
	// settled is the age from which a file's time is reliable. A younger file may change
	// again within the same second.
	settled = time.Minute
)

// validator returns the part of a revision, after the hash, for conditional requests: an
// ETag or a time. It returns "" when the server sends neither.
func validator(resp *http.Response, url string) string {
	if resp.Request.URL.String() != url { // the URL may redirect elsewhere the next time
		return ""
	}
	if tag := resp.Header.Get("ETag"); tag != "" && len(tag) <= maxETag && !validate.HasControl(tag) {
		return byETag + tag
	}
	modified := resp.Header.Get("Last-Modified")
	changed, err := http.ParseTime(modified)
	if err != nil {
		return ""
	}
	if sent, err := http.ParseTime(resp.Header.Get("Date")); err != nil || sent.Sub(changed) < settled {
		return ""
	}
	return byTime + modified
}

// unlessChanged returns the headers of a conditional request, which the server answers with
// 304 if the revision is unchanged.
func unlessChanged(seen string) http.Header {
	if _, tag, ok := strings.Cut(seen, byETag); ok {
		return http.Header{"If-None-Match": {tag}}
	}
	if _, at, ok := strings.Cut(seen, byTime); ok {
		return http.Header{"If-Modified-Since": {at}}
	}
	return nil
}
