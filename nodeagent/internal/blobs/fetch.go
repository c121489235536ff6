package blobs

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
	"sync"
	"sync/atomic"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// tries is how often a blob is asked for that breaks off or is damaged.
const tries = 3

// flight is a fetch under way.
type flight struct {
	done chan struct{}
	err  error
}

// FileError says which file's content could not be had.
type FileError struct {
	Path string
	Err  error
}

// Error names the file.
func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Fetch makes sure that the content of all regular files among the entries is here,
// several at once, the largest first. The first failure ends it, as a *FileError. Room
// is made before, but for files in their turn to go that give pieces: they go afterwards.
// Whoever needs the content then holds it.
func (c *Cache) Fetch(ctx context.Context, entries []fleet.ManifestEntry) error {
	files, err := regular(entries)
	if err != nil {
		return err
	}
	donors := c.findDonors(files)
	lacking, bytes := c.lacking(files)
	var givers map[string]bool
	if slices.ContainsFunc(lacking, func(e fleet.ManifestEntry) bool { return len(e.Chunks) > 0 }) {
		givers = c.givers(files, lacking, donors())
	}
	release := c.makeRoomBut(bytes, givers)
	err = c.fetch(ctx, files, donors)
	release()
	// On a full disk what was not used for long makes room, once; twice as much as is
	// lacking, since small files take more of a disk than they hold.
	if errs.Is(err, errs.Exhausted) && ctx.Err() == nil {
		if _, bytes := c.lacking(files); c.free(2 * bytes) {
			err = c.fetch(ctx, files, c.findDonors(files))
		}
	}
	if errs.Is(err, errs.Exhausted) {
		c.dropPartials(files)
	}
	return err
}

// regular are the regular files among the entries, each content once, the largest first.
func regular(entries []fleet.ManifestEntry) (files []fleet.ManifestEntry, err error) {
	seen := map[string]bool{}
	for _, e := range entries {
		if e.Kind != fleet.FileRegular || seen[e.SHA256] {
			continue
		}
		if !fleet.ValidDigest(e.SHA256) || e.Size < 0 {
			return nil, &FileError{Path: e.Path, Err: errs.New(errs.Invalid, "%q is not a SHA-256, or %d no size", e.SHA256, e.Size)}
		}
		seen[e.SHA256] = true
		files = append(files, e)
	}
	slices.SortStableFunc(files, func(a, b fleet.ManifestEntry) int { return cmp.Compare(b.Size, a.Size) })
	return files, nil
}

func (c *Cache) fetch(ctx context.Context, files []fleet.ManifestEntry, donors donors) error {
	return each(ctx, files, func(ctx context.Context, e fleet.ManifestEntry) error {
		if _, err := c.file(ctx, e, donors); err != nil {
			return &FileError{Path: e.Path, Err: err}
		}
		return nil
	})
}

// each does something for all of a list, several at once, until one fails.
func each[T any](ctx context.Context, list []T, do func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan T, len(list))
	for _, v := range list {
		next <- v
	}
	close(next)
	var workers sync.WaitGroup
	for range min(parallel, len(list)) {
		workers.Go(func() {
			for v := range next {
				if ctx.Err() != nil {
					return
				}
				if err := do(ctx, v); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// stand makes sure that a good file stands where a hash has its place: verified if it is
// there, else made. However many ask for it, one makes it.
func (c *Cache) stand(ctx context.Context, hash string, place func(string) string, make func(context.Context, string) error) (string, error) {
	if !fleet.ValidDigest(hash) {
		return "", errs.New(errs.Invalid, "%q is not a SHA-256", hash)
	}
	path := place(hash)
	if c.known(path) {
		return path, nil
	}
	for {
		f, mine := c.join(path)
		if !mine {
			select {
			case <-f.done:
			case <-ctx.Done():
				return "", errs.Wrap("blobs.File", ctx.Err())
			}
			// The one who fetched may only have been told to give up.
			if f.err != nil && errs.Is(f.err, errs.Canceled) && ctx.Err() == nil {
				continue
			}
			return path, f.err
		}
		f.err = c.fill(ctx, hash, path, make)
		c.leave(path, f)
		return path, f.err
	}
}

func (c *Cache) join(path string) (f *flight, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.flights[path]; ok {
		return f, false
	}
	f = &flight{done: make(chan struct{})}
	c.flights[path] = f
	return f, true
}

func (c *Cache) leave(path string, f *flight) {
	c.mu.Lock()
	delete(c.flights, path)
	c.mu.Unlock()
	close(f.done)
}

func (c *Cache) fill(ctx context.Context, hash, path string, make func(context.Context, string) error) error {
	if c.known(path) { // somebody was quicker
		return nil
	}
	if !good(path, hash) {
		if err := make(ctx, path); err != nil {
			if ctx.Err() != nil {
				return errs.Wrap("blobs.fetch", ctx.Err())
			}
			return err
		}
	}
	return c.note(path)
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

// download is one blob to fetch.
type download struct {
	hash string
	// limit is what it holds at most, in bytes: the source is not trusted to end.
	limit int64
	path  string
	open  func(context.Context, string) (io.ReadCloser, error)
}

// errBroken marks content that broke off or is damaged: another try may get it whole.
var errBroken = errors.New("it broke off or is damaged")

// slot waits until one more may fetch, who gives it back.
func (c *Cache) slot(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errs.Wrap("blobs.fetch", ctx.Err())
	}
}

// freeSlot takes a slot if there is one that nobody waits for.
func (c *Cache) freeSlot() bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c *Cache) giveBack() { <-c.slots }

// download fetches a blob, again when it breaks off or is damaged.
func (c *Cache) download(ctx context.Context, d download) error {
	for n := 1; ; n++ {
		err := c.downloadOnce(ctx, d)
		if n == tries || ctx.Err() != nil || !errors.Is(err, errBroken) {
			return err
		}
	}
}

func (c *Cache) downloadOnce(ctx context.Context, d download) error {
	if err := c.slot(ctx); err != nil {
		return err
	}
	defer c.giveBack()
	body, err := d.open(ctx, d.hash)
	if err != nil {
		return errs.Wrap("blobs.fetch", err)
	}
	defer body.Close()
	return write(d.path, func(w io.Writer) error {
		h, from := sha256.New(), &source{Reader: io.LimitReader(body, d.limit+1)}
		b := c.block()
		defer c.blocks.Put(b)
		n, err := io.CopyBuffer(io.MultiWriter(h, w), from, *b)
		count(ctx, n)
		switch got := hex.EncodeToString(h.Sum(nil)); {
		case from.err != nil:
			return errs.As(errs.Unavailable, "blobs.fetch", errors.Join(from.err, errBroken))
		case err != nil:
			return err
		case got != d.hash:
			// The complaint may fail: the content is asked for anew all the same.
			_ = c.source.Suspect(ctx, d.hash)
			return errs.As(errs.Unavailable, "blobs.fetch", fmt.Errorf("asked for %s, got content with hash %s: %w", d.hash, got, errBroken))
		}
		return nil
	})
}

// countKey is where a context carries the number of bytes that come under it.
type countKey struct{}

// counting is a context under which the bytes that come are added up.
func counting(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, countKey{}, n), n
}

func count(ctx context.Context, bytes int64) {
	if n, ok := ctx.Value(countKey{}).(*atomic.Int64); ok {
		n.Add(bytes)
	}
}

// source keeps what a read failed with apart from what a write failed with.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// write makes a file beside its place and moves it there.
func write(path string, fill func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return disk("blobs.write", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), underway+"*")
	if err != nil {
		return disk("blobs.write", err)
	}
	defer os.Remove(tmp.Name()) // fails after the rename, as it should
	err = fill(tmp)
	if err = errors.Join(err, tmp.Chmod(0o444), tmp.Close()); err != nil {
		return disk("blobs.write", err)
	}
	return disk("blobs.write", os.Rename(tmp.Name(), path))
}

// underway is how the name of a file begins that is not whole.
const underway = ".new-"
