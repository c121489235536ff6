package workspace

import (
	"context"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// batchFiles and batchBytes bound what one worker takes at a time: so much that the
	// directory is opened seldom, so little that all workers end together.
	batchFiles = 64
	batchBytes = 8 << 20
)

// placers is how many files of one directory are written at once.
func placers() int { return min(8, max(2, runtime.GOMAXPROCS(0))) }

// batch is files of one directory that one worker places.
type batch struct {
	dir   string
	paths []string
}

// batches cuts the tree's files by directory, in order.
func (a *application) batches() []batch {
	paths := a.tree.sorted(fleet.FileRegular)
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

// placeFiles writes the regular files, several at once; the first error ends all.
func (a *application) placeFiles(ctx context.Context) error {
	all := a.batches()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan batch, len(all))
	for _, b := range all {
		next <- b
	}
	close(next)
	var workers sync.WaitGroup
	for range min(placers(), len(all)) {
		workers.Go(func() {
			for b := range next {
				if err := a.placeBatch(ctx, b); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

func (a *application) placeBatch(ctx context.Context, b batch) error {
	into, err := a.root.OpenFile(b.dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer into.Close()
	for _, p := range b.paths {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := a.placeFile(ctx, into, p); err != nil {
			return err
		}
	}
	return nil
}

// placeFile brings one file: its blob, or the text that comes of it.
func (a *application) placeFile(ctx context.Context, into *os.File, p string) error {
	if a.keeps(p) {
		return a.rewriteInPlace(p)
	}
	if a.made(p) {
		return a.placeText(ctx, into, p)
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
	return a.bring(into, p, content{blob: src, size: e.Size, mode: a.mode(p, fs.FileMode(e.Mode&0o777))})
}

// bring puts a file where it belongs; into is its directory.
func (a *application) bring(into *os.File, p string, c content) error {
	if a.fresh {
		return a.create(into, p, c)
	}
	return a.settle(p, c)
}

// create makes a file in a new directory, where nothing can be in the way and nobody
// looks yet: so it needs no other name, and no way to it but the directory's own.
func (a *application) create(into *os.File, p string, c content) error {
	fd, err := ignoringInterrupts(func() (int, error) {
		return unix.Openat(int(into.Fd()), path.Base(p),
			unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(c.mode))
	})
	if err != nil {
		return &fs.PathError{Op: "create", Path: p, Err: err}
	}
	dst := os.NewFile(uintptr(fd), p)
	defer dst.Close() // a second time it does nothing
	if err := a.copier.fill(dst, c); err != nil {
		return err
	}
	// The process' mask has taken bits away; to ask is cheaper than to set.
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

func ignoringInterrupts[T any](call func() (T, error)) (T, error) {
	for {
		got, err := call()
		if err != unix.EINTR {
			return got, err
		}
	}
}
