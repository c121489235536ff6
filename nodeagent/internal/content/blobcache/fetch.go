package blobcache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// tries is how often a blob is requested if the transfer fails or the content is corrupt.
const tries = 3

// flight is a fetch in progress.
type flight struct {
	done chan struct{}
	err  error
}

// FileError names the file whose content could not be fetched.
type FileError struct {
	Path string
	Err  error
}

// Error returns the path and the cause.
func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Fetch ensures that the content of all regular files among the entries is cached. It fetches
// several files concurrently, the largest first, and stops at the first failure, a *FileError.
// It evicts content before it fetches. Files that are due for eviction but hold chunks of the
// new content stay until these are copied. Callers that need the content afterwards pin it first.
func (c *Cache) Fetch(ctx context.Context, entries []content.ManifestEntry) error {
	files, err := regular(entries)
	if err != nil {
		return err
	}
	index := c.indexChunks(files)
	missing, bytes := c.missing(files)
	var chunkSources map[string]bool
	if slices.ContainsFunc(missing, func(e content.ManifestEntry) bool { return len(e.Chunks) > 0 }) {
		chunkSources = c.chunkSources(files, missing, index())
	}
	release := c.evictToFitExcept(bytes, chunkSources)
	err = c.fetch(ctx, files, index)
	release()
	// The disk is full: evict once, and retry. Evict twice the missing size, because small
	// files use more disk than their size.
	if errs.Is(err, errs.Exhausted) && ctx.Err() == nil {
		if _, bytes := c.missing(files); c.freeDisk(2 * bytes) {
			err = c.fetch(ctx, files, c.indexChunks(files))
		}
	}
	if errs.Is(err, errs.Exhausted) {
		c.removePartials(files)
	}
	return err
}

// regular returns the regular files among the entries, each content once, the largest first.
func regular(entries []content.ManifestEntry) (files []content.ManifestEntry, err error) {
	seen := map[string]bool{}
	for _, e := range entries {
		if e.Kind != content.FileRegular || seen[e.SHA256] {
			continue
		}
		if !content.ValidDigest(e.SHA256) || e.Size < 0 {
			return nil, &FileError{Path: e.Path, Err: errs.New(errs.Invalid, "the manifest entry has hash %q and size %d: it needs a SHA-256 and a size of 0 or more", e.SHA256, e.Size)}
		}
		seen[e.SHA256] = true
		files = append(files, e)
	}
	slices.SortStableFunc(files, func(a, b content.ManifestEntry) int { return cmp.Compare(b.Size, a.Size) })
	return files, nil
}

func (c *Cache) fetch(ctx context.Context, files []content.ManifestEntry, index chunkIndex) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, e := range files {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if _, err := c.file(ctx, e, index); err != nil {
				return &FileError{Path: e.Path, Err: err}
			}
			return nil
		})
	}
	return g.Wait()
}

// ensure returns the path of a verified blob. It calls fetch if the file is missing or
// corrupt. Concurrent calls for the same blob share one fetch.
func (c *Cache) ensure(ctx context.Context, hash string, fetch func(context.Context, string) error) (string, error) {
	if !content.ValidDigest(hash) {
		return "", errs.New(errs.Invalid, "%q is not a SHA-256", hash)
	}
	path := c.path(hash)
	if c.isVerified(path) {
		return path, nil
	}
	for {
		f, mine := c.joinFlight(path)
		if !mine {
			select {
			case <-f.done:
			case <-ctx.Done():
				return "", errs.Wrap("blobcache.File", ctx.Err())
			}
			// The fetch may have failed only because its own caller gave up.
			if f.err != nil && errs.Is(f.err, errs.Canceled) && ctx.Err() == nil {
				continue
			}
			return path, f.err
		}
		f.err = c.ensureOnce(ctx, hash, path, fetch)
		c.endFlight(path, f)
		return path, f.err
	}
}

func (c *Cache) joinFlight(path string) (f *flight, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.flights[path]; ok {
		return f, false
	}
	f = &flight{done: make(chan struct{})}
	c.flights[path] = f
	return f, true
}

func (c *Cache) endFlight(path string, f *flight) {
	c.mu.Lock()
	delete(c.flights, path)
	c.mu.Unlock()
	close(f.done)
}

func (c *Cache) ensureOnce(ctx context.Context, hash, path string, fetch func(context.Context, string) error) error {
	if c.isVerified(path) { // another call was faster
		return nil
	}
	if !hasHash(path, hash) {
		if err := fetch(ctx, path); err != nil {
			if ctx.Err() != nil {
				return errs.Wrap("blobcache.fetch", ctx.Err())
			}
			return err
		}
	}
	return c.markVerified(path)
}

// hasHash reports whether the file exists and has the given SHA-256.
func hasHash(path, hash string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == hash
}

// download describes one blob to fetch.
type download struct {
	hash string
	// limit is the maximum size in bytes; a source may send more than it should.
	limit int64
	path  string
	open  func(context.Context, string) (io.ReadCloser, error)
}

// errTransfer marks interrupted transfers and corrupt content, which are worth a retry.
var errTransfer = errors.New("the transfer was interrupted or the content is corrupt")

// acquireSlot waits for permission to fetch. The caller releases the slot.
func (c *Cache) acquireSlot(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errs.Wrap("blobcache.fetch", ctx.Err())
	}
}

// tryAcquireSlot takes a free slot without waiting, and reports whether there was one.
func (c *Cache) tryAcquireSlot() bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c *Cache) releaseSlot() { <-c.slots }

// download fetches a blob, and retries if the transfer fails or the content is corrupt.
func (c *Cache) download(ctx context.Context, d download) error {
	for n := 1; ; n++ {
		err := c.downloadOnce(ctx, d)
		if n == tries || ctx.Err() != nil || !errors.Is(err, errTransfer) {
			return err
		}
	}
}

func (c *Cache) downloadOnce(ctx context.Context, d download) error {
	if err := c.acquireSlot(ctx); err != nil {
		return err
	}
	defer c.releaseSlot()
	body, err := asUnavailable(d.open(ctx, d.hash))
	if err != nil {
		return errs.Wrap("blobcache.fetch", err)
	}
	defer body.Close()
	return write(d.path, func(w io.Writer) error {
		h, from := sha256.New(), &errReader{Reader: io.LimitReader(body, d.limit+1)}
		b := c.block()
		defer c.blocks.Put(b)
		n, err := io.CopyBuffer(io.MultiWriter(h, w), from, *b)
		addBytes(ctx, n)
		switch got := hex.EncodeToString(h.Sum(nil)); {
		case from.err != nil:
			return errs.WrapAs(errs.Unavailable, "blobcache.fetch", errors.Join(from.err, errTransfer))
		case err != nil:
			return err
		case got != d.hash:
			// An error of this report does not matter: the blob is requested again anyway.
			_ = c.source.Suspect(ctx, d.hash)
			return errs.WrapAs(errs.Unavailable, "blobcache.fetch", fmt.Errorf("asked for %s, got content with hash %s: %w", d.hash, got, errTransfer))
		}
		return nil
	})
}

// byteCounterKey is the context key of a counter of fetched bytes.
type byteCounterKey struct{}

// withByteCounter returns a context that counts the bytes fetched under it.
func withByteCounter(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, byteCounterKey{}, n), n
}

func addBytes(ctx context.Context, bytes int64) {
	if n, ok := ctx.Value(byteCounterKey{}).(*atomic.Int64); ok {
		n.Add(bytes)
	}
}

// errReader remembers a read error, to tell it from a write error of io.Copy.
type errReader struct {
	io.Reader
	err error
}

func (r *errReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// write creates a file under a temporary name and renames it to path.
func write(path string, fill func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return diskError("blobcache.write", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*")
	if err != nil {
		return diskError("blobcache.write", err)
	}
	defer os.Remove(tmp.Name()) // fails after the rename, which is fine
	err = fill(tmp)
	if err = errors.Join(err, tmp.Chmod(0o444), tmp.Close()); err != nil {
		return diskError("blobcache.write", err)
	}
	return diskError("blobcache.write", os.Rename(tmp.Name(), path))
}

// tempPrefix starts the name of an incomplete file.
const tempPrefix = ".new-"
