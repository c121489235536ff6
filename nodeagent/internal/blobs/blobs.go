// Package blobs is the node's cache of template content: files named by the
// SHA-256 of what they hold.
//
// Invariants:
//   - What stands under a hash was verified against it in this agent's life before
//     anybody gets to see it; a damaged file is fetched anew.
//   - A blob is fetched once, however many ask for it at the same time.
//   - A file appears whole or not at all.
package blobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Source is where content comes from.
type Source interface {
	// Manifest reads a template version by its digest. NotFound when nobody has it.
	Manifest(ctx context.Context, digest string) (fleet.Manifest, error)
	// Blob opens content by its hash; the caller closes it.
	Blob(ctx context.Context, sha256 string) (io.ReadCloser, error)
}

const (
	// parallel is how many blobs are fetched at once.
	parallel = 4
	// keepManifests bounds the manifests held in memory.
	keepManifests = 64
)

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Cache is a directory of blobs. It is safe for concurrent use.
type Cache struct {
	dir    string
	source Source
	slots  chan struct{}

	mu        sync.Mutex
	flights   map[string]*flight
	verified  map[string]stamp
	manifests map[string]fleet.Manifest
	warm      warmth

	remember sync.Once
}

// flight is a fetch under way.
type flight struct {
	done chan struct{}
	err  error
}

// stamp is how a verified file looked; a file that looks the same was not touched.
type stamp struct {
	size    int64
	changed time.Time
}

// Open makes the cache's directory when it is missing.
func Open(dir string, source Source) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, errs.As(errs.Unavailable, "blobs.Open", err)
	}
	return &Cache{
		dir: dir, source: source, slots: make(chan struct{}, parallel),
		flights: map[string]*flight{}, verified: map[string]stamp{}, manifests: map[string]fleet.Manifest{},
	}, nil
}

// Manifest is the content list of a template version. Errors are the source's; a
// list that does not have the digest it was asked for by is Unavailable.
func (c *Cache) Manifest(ctx context.Context, digest string) (fleet.Manifest, error) {
	c.mu.Lock()
	m, ok := c.manifests[digest]
	c.mu.Unlock()
	if ok {
		return m, nil
	}
	path, err := c.fetch(ctx, digest, func(ctx context.Context) (io.ReadCloser, error) { return c.openManifest(ctx, digest) })
	if err != nil {
		return fleet.Manifest{}, err
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return fleet.Manifest{}, errs.As(errs.Unavailable, "blobs.Manifest", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.manifests) >= keepManifests {
		clear(c.manifests)
	}
	c.manifests[digest] = m
	return m, nil
}

// openManifest reads a manifest as the bytes its digest is made of.
func (c *Cache) openManifest(ctx context.Context, digest string) (io.ReadCloser, error) {
	m, err := c.source.Manifest(ctx, digest)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, errs.As(errs.Internal, "blobs.Manifest", err)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// Path is the file that holds a blob, fetched if it is missing or damaged. Nobody
// may write to it. Exhausted when the disk is full.
func (c *Cache) Path(ctx context.Context, hash string) (string, error) {
	return c.fetch(ctx, hash, func(ctx context.Context) (io.ReadCloser, error) { return c.source.Blob(ctx, hash) })
}

func (c *Cache) fetch(ctx context.Context, hash string, open func(context.Context) (io.ReadCloser, error)) (string, error) {
	if !hashPattern.MatchString(hash) {
		return "", errs.New(errs.Invalid, "%q is not a SHA-256", hash)
	}
	path := c.path(hash)
	if c.known(hash, path) {
		return path, nil
	}
	for {
		f, mine := c.join(hash)
		if !mine {
			select {
			case <-f.done:
			case <-ctx.Done():
				return "", errs.Wrap("blobs.Path", ctx.Err())
			}
			// The one who fetched may only have been told to give up.
			if f.err != nil && errs.Is(f.err, errs.Canceled) && ctx.Err() == nil {
				continue
			}
			return path, f.err
		}
		f.err = c.fill(ctx, hash, path, open)
		c.leave(hash, f)
		return path, f.err
	}
}

// path is where a blob stands, or would.
func (c *Cache) path(hash string) string { return filepath.Join(c.dir, hash[:2], hash) }

// known reports whether the file was verified and still looks the same.
func (c *Cache) known(hash, path string) bool {
	c.mu.Lock()
	want, ok := c.verified[hash]
	c.mu.Unlock()
	if !ok {
		return false
	}
	fi, err := os.Stat(path)
	return err == nil && stampOf(fi) == want
}

func stampOf(fi fs.FileInfo) stamp { return stamp{fi.Size(), fi.ModTime()} }

func (c *Cache) join(hash string) (f *flight, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.flights[hash]; ok {
		return f, false
	}
	f = &flight{done: make(chan struct{})}
	c.flights[hash] = f
	return f, true
}

func (c *Cache) leave(hash string, f *flight) {
	c.mu.Lock()
	delete(c.flights, hash)
	c.mu.Unlock()
	close(f.done)
}

// fill makes sure that a good file stands at path: verified if it is there, else fetched.
func (c *Cache) fill(ctx context.Context, hash, path string, open func(context.Context) (io.ReadCloser, error)) error {
	if c.known(hash, path) { // somebody was quicker
		return nil
	}
	if good(path, hash) {
		return c.note(hash, path)
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return errs.Wrap("blobs.Path", ctx.Err())
	}
	body, err := open(ctx)
	if err != nil {
		return errs.Wrap("blobs.fetch", err)
	}
	defer body.Close()
	if err := store(path, hash, body); err != nil {
		if ctx.Err() != nil {
			return errs.Wrap("blobs.fetch", ctx.Err())
		}
		return err
	}
	return c.note(hash, path)
}

func (c *Cache) note(hash, path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return errs.As(errs.Unavailable, "blobs.note", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified[hash] = stampOf(fi)
	return nil
}

// good reports whether the file exists and holds what its name says.
func good(path, hash string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == hash
}

// store writes a blob beside its place, verifies it and moves it there.
func store(path, hash string, body io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return disk("blobs.store", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return disk("blobs.store", err)
	}
	defer os.Remove(tmp.Name()) // fails after the rename, as it should
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(tmp, h), body)
	err = errors.Join(err, tmp.Chmod(0o444), tmp.Close())
	if err != nil {
		return disk("blobs.store", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != hash {
		return errs.As(errs.Unavailable, "blobs.store", fmt.Errorf("asked for %s, got content with hash %s", hash, got))
	}
	return disk("blobs.store", os.Rename(tmp.Name(), path))
}

// disk tells a full disk from other trouble.
func disk(op string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.As(errs.Exhausted, op, err)
	}
	return errs.As(errs.Unavailable, op, err)
}
