// Package artifact brings a template from a URL whose content is known by its hash.
//
// Invariants: only an answer 200 whose bytes have the hash is read at all; what has
// another one, such as a page about an error, is never stored.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/fulldisk"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
)

// Fetch brings the artifact, unless it was brought before: what has a hash does not
// change. Invalid when the bytes have another hash or are no archive, Unavailable when
// they cannot be had, TooLarge beyond an archive's limits.
func Fetch(ctx context.Context, r origin.Request) (*origin.Holding, error) {
	if r.Seen == r.Source.SHA256 {
		return nil, nil
	}
	f, err := os.CreateTemp(r.Spool, "artifact-*")
	if err != nil {
		return nil, fulldisk.Error("artifact.Fetch", err)
	}
	done := func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	if err := download(ctx, r, f); err != nil {
		done()
		return nil, err
	}
	read := func(ctx context.Context, add origin.Add) (fleet.Manifest, error) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fleet.Manifest{}, errs.As(errs.Unavailable, "artifact.Fetch", err)
		}
		if r.Source.File != "" {
			return single(r.Source.File, f, add)
		}
		o := archive.Options{Limits: archive.DefaultLimits(), Spool: r.Spool}
		return archive.Collect(ctx, f, o, add)
	}
	return &origin.Holding{
		Revision: r.Source.SHA256, Templates: []origin.Template{{Ref: r.Source.Template, Manifest: read}}, Close: done,
	}, nil
}

// single is the template of one file.
func single(name string, r io.Reader, add origin.Add) (fleet.Manifest, error) {
	c, err := add(r, archive.DefaultLimits().TotalBytes)
	return fleet.Manifest{Entries: []fleet.ManifestEntry{
		{Path: name, Mode: 0o644, Size: c.Size, SHA256: c.SHA256, Chunks: c.Chunks},
	}}, err
}

// download writes what the URL brings and checks its hash.
func download(ctx context.Context, r origin.Request, to io.Writer) error {
	const what = "the artifact's server"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Source.URL, nil)
	if err != nil {
		return errs.Field("url", "is not a URL")
	}
	if r.Credentials.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Credentials.Token)
	}
	client := r.Dialer.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return origin.Unreachable(what, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errs.New(errs.Unavailable, "%s answers %s: look at the URL and the token", what, resp.Status)
	}
	limit := archive.DefaultLimits().TotalBytes
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(resp.Body, limit+1))
	switch sum := hex.EncodeToString(h.Sum(nil)); {
	case fulldisk.Is(err):
		return fulldisk.Error("artifact.Fetch", err)
	case err != nil:
		return origin.Unreachable(what, err)
	case n > limit:
		return errs.New(errs.TooLarge, "the artifact is larger than %d MiB: split it", limit>>20)
	case sum != r.Source.SHA256:
		kind := ""
		if t := resp.Header.Get("Content-Type"); t != "" {
			kind = " (" + t + ")"
		}
		return errs.Field("sha256", "expected %s, got %s%s: if the artifact was changed on purpose, give its new hash", r.Source.SHA256, sum, kind)
	}
	return nil
}
