// Package artifacts caches the artifacts of the catalog: remote files that are identified
// by URL and hash.
//
// Invariants:
//   - A file is stored under a hash only after its content was verified. Error pages and
//     partial files are never stored.
//   - Downloads by hash use only URLs of the catalog. They use http and https, and follow
//     ten redirects at most, never from https to http.
//   - Storing a file removes files that the catalog no longer refers to.
package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	syncflight "golang.org/x/sync/singleflight"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
	"github.com/orreryhq/orrery/templatesvc/internal/singleflight"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

const (
	// MaxBytes is the maximum size of an artifact.
	MaxBytes = 1 << 30
	// maxDownloads is the maximum number of concurrent downloads of Get.
	maxDownloads = 64
	// maxRedirects is the maximum number of redirects per download.
	maxRedirects = 10
	// downloadTime is the maximum duration of a download, silence that without any data.
	downloadTime = 10 * time.Minute
	silence      = 30 * time.Second
	// grace is how long a file is kept that the catalog does not refer to. Pin stores a
	// file before its catalog entry is written.
	grace = time.Hour
)

// Config is what a Store needs. Egress is optional.
type Config struct {
	// Dir is the directory of the files. Replicas may share it.
	Dir string
	// Catalog returns the current catalog.
	Catalog func(ctx context.Context) ([]content.CatalogPlatform, error)
	// Egress says which addresses downloads may use.
	Egress egress.Policy
	// Now returns the time, by the clock that stamps the files in Dir.
	Now func() time.Time
	Log *slog.Logger
}

// Store is a directory of artifacts. It is safe for concurrent use.
type Store struct {
	cfg  Config
	http *http.Client
	// downloads has the downloads of Get, by hash, and pins those of Pin, by URL.
	downloads *singleflight.Group
	pins      syncflight.Group
}

// Open returns a Store and creates the directory if necessary.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "catalog.Open", err)
	}
	client := sources.Dialer{Idle: silence, Egress: cfg.Egress}.Client()
	client.CheckRedirect = redirect
	client.Transport.(*http.Transport).DisableKeepAlives = true // the policy checks each request's connection
	return &Store{cfg: cfg, http: client, downloads: singleflight.New(maxDownloads)}, nil
}

func redirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return errs.New(errs.Invalid, "it is redirected more than %d times", maxRedirects)
	case r.URL.Scheme != "https" && (r.URL.Scheme != "http" || via[len(via)-1].URL.Scheme == "https"):
		return errs.New(errs.Invalid, "it is redirected to %s", r.URL.Scheme)
	}
	return nil
}

// Get opens an artifact by its hash and downloads it if necessary. The caller closes it.
// Get returns NotFound when the catalog does not list it or its URL does not exist,
// Conflict with both hashes when the URL has another file, and Unavailable when the host
// does not answer.
func (s *Store) Get(ctx context.Context, sum string) (*os.File, error) {
	if !content.ValidDigest(sum) {
		return nil, errs.New(errs.Malformed, "an artifact is named by a SHA-256")
	}
	for {
		f, err := os.Open(s.path(sum))
		if !errors.Is(err, fs.ErrNotExist) {
			return f, errs.WrapAs(errs.Unavailable, "catalog.Get", err)
		}
		if err := s.downloads.Once(ctx, sum, func() error { return s.download(ctx, sum) }); err != nil {
			return nil, err
		}
	}
}

func (s *Store) path(sum string) string { return filepath.Join(s.cfg.Dir, sum) }

// download downloads the file that the catalog lists with this hash.
func (s *Store) download(ctx context.Context, sum string) error {
	platforms, err := s.cfg.Catalog(ctx)
	if err != nil {
		return errs.Wrap("catalog.Get", err)
	}
	var failed []error
	tried := map[string]bool{}
	for _, p := range platforms {
		for _, v := range p.Versions {
			if v.SHA256 != sum || tried[v.URL] {
				continue
			}
			tried[v.URL] = true
			got, err := s.fetch(ctx, v.URL, sum)
			if err == nil && got.SHA256 != sum {
				err = errs.New(errs.Conflict, "%s %s has another hash: the catalog says %s, its URL has %s; correct the one that is wrong",
					p.Platform, v.Version, sum, got.SHA256)
			}
			if err == nil {
				s.tidy(platforms)
				return nil
			}
			if failed = append(failed, err); ctx.Err() != nil {
				return worst(sum, failed)
			}
		}
	}
	return worst(sum, failed)
}

// worst combines the errors of all URLs of a hash. If one of them may succeed later, the result
// has its kind, so that the start is retried.
func worst(sum string, failed []error) error {
	if len(failed) == 0 {
		return errs.New(errs.NotFound, "the catalog names no artifact %s", sum)
	}
	first, told := failed[0], make([]string, len(failed))
	for n, err := range failed {
		told[n] = errs.MessageOf(err)
		if errs.Is(err, errs.Unavailable) && !errs.Is(first, errs.Unavailable) {
			first = err
		}
	}
	if len(failed) == 1 {
		return first
	}
	return &errs.Error{Kind: errs.KindOf(first), Field: errs.FieldOf(first), Message: strings.Join(told, "; "), Err: errors.Join(failed...)}
}

// urlField is the field of errors about a URL or its host.
const urlField = "downloadUrl"

// Pin downloads the file at a URL, stores it under its hash, and returns the hash and the
// size. It returns Invalid with the field downloadUrl when the URL or its host is at fault,
// and Unavailable when the file cannot be stored here. Concurrent calls for one URL share a
// download.
func (s *Store) Pin(ctx context.Context, url string) (content.Content, error) {
	if !content.ValidArtifactURL(url) {
		return content.Content{}, errs.Field(urlField, "is not a URL of http or https")
	}
	for {
		shared := s.pins.DoChan(url, func() (any, error) {
			c, err := s.pin(ctx, url)
			if ctx.Err() != nil {
				err = errAbandoned
			}
			return c, err
		})
		select {
		case got := <-shared:
			if errors.Is(got.Err, errAbandoned) && ctx.Err() == nil {
				continue
			}
			c, _ := got.Val.(content.Content)
			return c, got.Err
		case <-ctx.Done():
			return content.Content{}, errs.Wrap("catalog.Pin", ctx.Err())
		}
	}
}

// errAbandoned is the error of a shared download whose first caller gave up.
var errAbandoned = errs.New(errs.Canceled, "the download was abandoned")

// pin is Pin without the check of the URL and without sharing.
func (s *Store) pin(ctx context.Context, url string) (content.Content, error) {
	c, err := s.fetch(ctx, url, "")
	if err != nil && errs.FieldOf(err) == urlField && ctx.Err() == nil {
		err = &errs.Error{Kind: errs.Invalid, Field: urlField, Message: "cannot be downloaded: " + errs.MessageOf(err), Err: err}
	}
	return c, err
}

// ofURL returns an error about a URL or its host.
func ofURL(kind errs.Kind, format string, args ...any) error {
	return &errs.Error{Kind: kind, Field: urlField, Message: fmt.Sprintf(format, args...)}
}

// fetch downloads the file at a URL and stores it if it has the wanted hash. "" accepts any.
func (s *Store) fetch(ctx context.Context, url, want string) (content.Content, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	defer s.http.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return content.Content{}, errs.Field(urlField, "is not a URL of http or https")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return content.Content{}, unreachable(url, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return content.Content{}, ofURL(errs.Unavailable, "%s answers %s", url, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return content.Content{}, ofURL(errs.NotFound, "%s answers %s", url, resp.Status)
	case resp.ContentLength > MaxBytes:
		return content.Content{}, ofURL(errs.TooLarge, "%s has more than %d MiB", url, MaxBytes>>20)
	}
	return s.keep(url, want, resp.Body)
}

// unreachable returns an error that contains only the catalog's URL, because the URL of a
// redirect may be signed.
func unreachable(url string, err error) error {
	if request := (*neturl.Error)(nil); errors.As(err, &request) {
		err = request.Err
	}
	var known *errs.Error
	if errors.As(err, &known) {
		return ofURL(known.Kind, "%s: %s", url, errs.MessageOf(known))
	}
	return &errs.Error{Op: "catalog.fetch", Kind: errs.Unavailable, Field: urlField, Message: url + " does not answer", Err: err}
}

// keep writes a body to a temporary file and renames it if it has the wanted hash.
func (s *Store) keep(url, want string, body io.Reader) (c content.Content, err error) {
	tmp, err := os.CreateTemp(s.cfg.Dir, ".new-")
	if err != nil {
		return c, diskerror.Error("catalog.keep", err)
	}
	defer os.Remove(tmp.Name()) // fails after the rename, as intended
	defer tmp.Close()           // no effect after an earlier Close
	h, from := sha256.New(), &told{r: io.LimitReader(body, MaxBytes+1)}
	c.Size, err = io.Copy(io.MultiWriter(tmp, h), from)
	switch {
	case from.err != nil:
		return c, &errs.Error{Op: "catalog.keep", Kind: errs.Unavailable, Field: urlField, Message: url + " broke off", Err: err}
	case diskerror.Is(err):
		return c, diskerror.Error("catalog.keep", err)
	case err != nil:
		return c, &errs.Error{Op: "catalog.keep", Kind: errs.Unavailable, Message: "templatesvc cannot keep " + url + ": look at the disk of blobs.dir", Err: err}
	case c.Size > MaxBytes:
		return c, ofURL(errs.TooLarge, "%s has more than %d MiB", url, MaxBytes>>20)
	}
	c.SHA256 = hex.EncodeToString(h.Sum(nil))
	if want != "" && c.SHA256 != want {
		return c, nil
	}
	err = errors.Join(tmp.Sync(), tmp.Close(), os.Rename(tmp.Name(), s.path(c.SHA256)))
	return c, diskerror.Error("catalog.keep", err)
}

// told remembers whether reading failed.
type told struct {
	r   io.Reader
	err error
}

func (t *told) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return n, err
}

// tidy removes files that the catalog does not list and that are older than grace.
func (s *Store) tidy(platforms []content.CatalogPlatform) {
	named := map[string]bool{}
	for _, p := range platforms {
		for _, v := range p.Versions {
			named[v.SHA256] = true
		}
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	for _, e := range entries {
		fi, infoErr := e.Info()
		if named[e.Name()] || infoErr != nil || s.cfg.Now().Sub(fi.ModTime()) < grace {
			continue
		}
		err = errors.Join(err, os.Remove(filepath.Join(s.cfg.Dir, e.Name())))
	}
	if err != nil {
		s.cfg.Log.Warn("artifacts that the catalog does not name any more could not be removed: look at the directory artifacts in blobs.dir", "error", fmt.Sprint(err))
	}
}
