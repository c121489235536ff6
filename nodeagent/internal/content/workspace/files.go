package workspace

import (
	"context"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

const (
	// batchFiles and batchBytes limit a worker's batch: large enough that directories are
	// seldom opened, small enough that all workers finish together.
	batchFiles = 64
	batchBytes = 8 << 20
)

// writers is the number of files that are written concurrently.
func writers() int { return min(8, max(2, runtime.GOMAXPROCS(0))) }

// batch is some files of the same directory.
type batch struct {
	dir   string
	paths []string
}

// batches groups the files of the tree by directory, in order.
func (a *applier) batches() []batch {
	paths := a.tree.sorted(content.FileRegular)
	slices.SortFunc(paths, func(x, y string) int {
		if c := strings.Compare(path.Dir(x), path.Dir(y)); c != 0 {
			return c
		}
		return strings.Compare(x, y)
	})
	var all []batch
	var size int64
	for _, p := range paths {
		last := len(all) - 1
		if last < 0 || all[last].dir != path.Dir(p) || len(all[last].paths) == batchFiles || size > batchBytes {
			all, size, last = append(all, batch{dir: path.Dir(p)}), 0, last+1
		}
		all[last].paths = append(all[last].paths, p)
		size += a.tree.files[p].Size
	}
	return all
}

// writeFiles writes the regular files concurrently, and stops at the first error.
func (a *applier) writeFiles(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers())
	for _, b := range a.batches() {
		g.Go(func() error { return a.writeBatch(ctx, b) })
	}
	return g.Wait()
}

func (a *applier) writeBatch(ctx context.Context, b batch) error {
	into, err := a.root.OpenFile(b.dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer into.Close()
	for _, p := range b.paths {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := a.writeFile(ctx, into, p); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes one file: a copy of its blob, or generated text.
func (a *applier) writeFile(ctx context.Context, into *os.File, p string) error {
	if a.keeps(p) {
		return a.editKept(p)
	}
	if a.generated(p) {
		return a.writeText(ctx, into, p)
	}
	e := a.tree.files[p]
	blob, err := a.builder.cache.File(ctx, e)
	if err != nil {
		return fetchFailure(ctx, p, err)
	}
	src, err := os.Open(blob)
	if err != nil {
		return err
	}
	defer src.Close()
	return a.write(into, p, body{blob: src, size: e.Size, mode: a.mode(p, fs.FileMode(e.Mode&0o777))})
}

// write writes a file. into is its directory.
func (a *applier) write(into *os.File, p string, c body) error {
	if a.fresh {
		return a.create(into, p, c)
	}
	return a.update(p, c)
}

// create creates a file in a new directory, which no other process uses yet. So it needs no
// temporary name.
func (a *applier) create(into *os.File, p string, c body) error {
	fd, err := openat(into, path.Base(p), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, c.mode)
	if err != nil {
		return &fs.PathError{Op: "create", Path: p, Err: err}
	}
	dst := os.NewFile(uintptr(fd), p)
	defer dst.Close() // the second Close has no effect
	if err := c.fill(dst); err != nil {
		return err
	}
	// The umask may have removed bits. Fstat is cheaper than an unconditional Fchmod.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: p, Err: err}
	}
	if fs.FileMode(st.Mode&0o7777) != c.mode {
		if err := dst.Chmod(c.mode); err != nil {
			return err
		}
	}
	return dst.Close()
}

func openat(dir *os.File, name string, flags int, mode fs.FileMode) (fd int, err error) {
	for {
		if fd, err = unix.Openat(int(dir.Fd()), name, flags, uint32(mode)); err != unix.EINTR {
			return fd, err
		}
	}
}
