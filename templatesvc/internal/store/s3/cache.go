package s3

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// cache is a directory with objects that were read from the bucket, so that ten nodes that
// request the same blob cause one download. It evicts the least recently used files. Losing
// a file only costs a download.
//
//	<sum><form>          a cached object
//	new-<process>-*      a download in progress
//	lock-<process>       locked while that process lives, to protect its downloads
type cache struct {
	dir  string
	most int64 // maximum size in bytes
	own  *lock

	mu   sync.Mutex
	held int64 // approximate size on the disk in bytes
}

func openCache(dir string, most int64) (*cache, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "objects.New", err)
	}
	own, err := newLock(dir)
	if err != nil {
		return nil, err
	}
	c := &cache{dir: dir, most: most, own: own}
	if err := errors.Join(sweep(dir), c.shrink()); err != nil {
		own.release()
		return nil, errs.WrapAs(errs.Unavailable, "objects.New", err)
	}
	return c, nil
}

func (c *cache) path(sum string, form blob.Form) string {
	return filepath.Join(c.dir, sum+string(form))
}

// open opens a cached file. It returns nil when there is none.
func (c *cache) open(sum string, form blob.Form) *os.File {
	f, err := os.Open(c.path(sum, form))
	if err != nil {
		return nil
	}
	if fi, err := f.Stat(); err == nil { // record the use; failing to do so may cost a download
		_ = os.Chtimes(f.Name(), time.Now(), fi.ModTime())
	}
	return f
}

func (c *cache) has(sum string, forms []blob.Form) bool {
	return slices.ContainsFunc(forms, func(form blob.Form) bool {
		_, err := os.Stat(c.path(sum, form))
		return err == nil
	})
}

func (c *cache) create() (*os.File, error) {
	f, err := os.CreateTemp(c.dir, newPrefix+c.own.process+"-*")
	return f, full(err)
}

func (c *cache) discard(tmp *os.File) {
	_ = tmp.Close()
	_ = os.Remove(tmp.Name()) // otherwise the next process removes it
}

// take adds a file from create to the cache.
func (c *cache) take(sum string, form blob.Form, tmp *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(tmp.Fd()), &st); err != nil {
		c.discard(tmp)
		return full(err)
	}
	if err := errors.Join(tmp.Close(), os.Rename(tmp.Name(), c.path(sum, form))); err != nil {
		return full(errors.Join(err, os.Remove(tmp.Name())))
	}
	c.mu.Lock()
	c.held += taken(&st)
	over := c.held > c.most
	c.mu.Unlock()
	if over {
		return c.shrink()
	}
	return nil
}

func (c *cache) drop(sum string, form blob.Form) { _ = os.Remove(c.path(sum, form)) }

// shrink evicts the least recently used files until nine tenths of the maximum size are
// used. It always keeps the most recently used file.
func (c *cache) shrink() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	type file struct {
		path  string
		bytes int64
		used  time.Time
	}
	var files []file
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "objects.shrink", err)
	}
	c.held = 0
	for _, e := range entries {
		var st unix.Stat_t
		path := filepath.Join(c.dir, e.Name())
		if len(e.Name()) < 64 || unix.Stat(path, &st) != nil {
			continue // a download, or already removed
		}
		files = append(files, file{path, taken(&st), time.Unix(st.Atim.Unix())})
		c.held += taken(&st)
	}
	if c.held <= c.most {
		return nil
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	for _, f := range files[:len(files)-1] {
		if c.held <= c.most/10*9 {
			break
		}
		if os.Remove(f.path) == nil {
			c.held -= f.bytes
		}
	}
	return nil
}

// taken returns the size of a file on the disk, but at least its length, because a
// compressing file system may not always save space.
func taken(st *unix.Stat_t) int64 { return max(st.Size, st.Blocks*512) }

// writer writes to a file and returns the errors of full.
type writer struct{ *os.File }

// Write implements io.Writer.
func (w writer) Write(b []byte) (int, error) {
	n, err := w.File.Write(b)
	return n, full(err)
}

// full returns Exhausted when the disk is full, and otherwise Unavailable.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return &errs.Error{Op: "objects.cache", Kind: errs.Exhausted, Err: err, Message: "the disk of blobs.dir is full: give it room, or lower blobs.s3.cache-mib"}
	}
	return errs.WrapAs(errs.Unavailable, "objects.cache", err)
}
