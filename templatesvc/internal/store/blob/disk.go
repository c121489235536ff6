package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
)

// disk is a medium in a directory.
//
//	<ab>/<sum>          a blob as it is
//	<ab>/<sum>.zst      a compressed blob
//	<ab>/<sum>.chunks   a recipe
//	incoming/           unfinished writes, which are renamed when they are complete
//	trash/<cycle>/      files that a collection has condemned, see package gc
//	corrupt/            damaged files, kept for a month; older ones are removed at the
//	                    start and whenever another file is set aside
//	store-id            the ID of the directory
type disk struct {
	dir string
	mu  sync.Mutex // held while a file is compared with the one at its path and moved
}

func newDisk(dir string) (*disk, error) {
	d := &disk{dir: dir}
	for _, sub := range []string{incoming, "trash", "corrupt"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, errs.WrapAs(errs.Unavailable, "blob.Open", err)
		}
	}
	return d, errs.WrapAs(errs.Unavailable, "blob.Open", d.forgetCorrupt())
}

// forgetCorrupt removes the damaged files that were set aside longer than putAside ago.
func (d *disk) forgetCorrupt() error {
	now, err := clockOf(d.incoming())
	if err != nil {
		return err
	}
	return removeOld(d.corrupt(), now.Add(-putAside))
}

func (d *disk) incoming() string { return filepath.Join(d.dir, incoming) }
func (d *disk) trash() string    { return filepath.Join(d.dir, "trash") }
func (d *disk) corrupt() string  { return filepath.Join(d.dir, "corrupt") }

// path returns the path of a file.
func (d *disk) path(sum string, f Form) string { return filepath.Join(d.dir, sum[:2], sum+string(f)) }

// Has implements Medium.
func (d *disk) Has(ctx context.Context, f File) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, errs.Wrap("blob.Has", err)
	}
	if d.has(f) {
		return true, nil
	}
	d.rescue(f.Sum)
	return d.has(f), nil
}

func (d *disk) has(f File) bool {
	if f.Form == Joined {
		_, err := os.Stat(d.path(f.Sum, Joined))
		return err == nil
	}
	if fi, err := os.Stat(d.path(f.Sum, Raw)); err == nil && fi.Size() == f.Size {
		return true
	}
	packed, err := os.Open(d.path(f.Sum, Packed))
	if err != nil {
		return false
	}
	defer packed.Close()
	size, err := unpackedSize(packed)
	return err == nil && size == f.Size
}

// Open implements Medium.
func (d *disk) Open(ctx context.Context, sum string, forms ...Form) (*os.File, Form, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", errs.Wrap("blob.Open", err)
	}
	f, form, err := d.open(sum, forms)
	if errors.Is(err, fs.ErrNotExist) {
		d.rescue(sum)
		f, form, err = d.open(sum, forms)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", errs.New(errs.NotFound, "blob %s is not stored here", sum)
	}
	return f, form, errs.WrapAs(errs.Unavailable, "blob.Open", err)
}

func (d *disk) open(sum string, forms []Form) (f *os.File, form Form, err error) {
	for _, form = range forms {
		if f, err = os.Open(d.path(sum, form)); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return f, form, err
}

// Write implements Medium.
func (d *disk) Write(ctx context.Context, f File, b []byte) error {
	tmp, err := os.CreateTemp(d.incoming(), "blob-*")
	if err != nil {
		return diskerror.Error("blob.Write", err)
	}
	defer func() {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name()) // already gone if it was renamed
	}()
	if _, err := tmp.Write(b); err != nil {
		return diskerror.Error("blob.Write", err)
	}
	return d.Take(ctx, f, tmp)
}

// Take implements Medium.
func (d *disk) Take(_ context.Context, f File, spooled *os.File) error {
	path := d.path(f.Sum, f.Form)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return diskerror.Error("blob.Take", err)
	}
	if err := spooled.Close(); err != nil { // a full disk may only show here
		return diskerror.Error("blob.Take", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return diskerror.Error("blob.Take", os.Rename(spooled.Name(), path))
}

// SetAside implements Medium. It keeps the stored file if that has been replaced since it
// was read.
func (d *disk) SetAside(_ context.Context, f File, read *os.File) error {
	was, err := read.Stat()
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "blob.SetAside", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	is, err := os.Stat(d.path(f.Sum, f.Form))
	if err != nil || !os.SameFile(was, is) {
		return gone("blob.SetAside", err)
	}
	aside := filepath.Join(d.corrupt(), f.Sum+string(f.Form))
	if err := os.Rename(d.path(f.Sum, f.Form), aside); err != nil {
		return gone("blob.SetAside", err)
	}
	_ = os.Chtimes(aside, time.Time{}, time.Now()) // starts the retention; on failure the file is removed sooner
	_ = d.forgetCorrupt()                          // the next call tries again
	return nil
}

// Flush implements Medium. It flushes the whole file system.
func (d *disk) Flush(context.Context) error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "blob.Flush", err)
	}
	defer dir.Close()
	return diskerror.Error("blob.Flush", unix.Syncfs(int(dir.Fd())))
}

// gone wraps an error as Unavailable, and drops the error that a file does not exist.
func gone(op string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errs.WrapAs(errs.Unavailable, op, err)
}

// ID implements Medium.
func (d *disk) ID(context.Context) (string, error) {
	path := filepath.Join(d.dir, "store-id")
	for {
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 {
			return strings.TrimSpace(string(b)), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", errs.WrapAs(errs.Unavailable, "blob.ID", err)
		}
		if err := d.name(path); err != nil {
			return "", err
		}
	}
}

// name writes the directory's ID, unless another process already has.
func (d *disk) name(path string) error {
	f, err := os.CreateTemp(d.incoming(), "id-*")
	if err != nil {
		return diskerror.Error("blob.ID", err)
	}
	_, err = fmt.Fprintln(f, rand.Text())
	err = errors.Join(err, f.Close())
	if err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return diskerror.Error("blob.ID", errors.Join(err, os.Remove(f.Name())))
}
