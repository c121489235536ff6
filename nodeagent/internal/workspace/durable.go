package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// flushers is how many files are flushed at once: the disk does several in one go.
const flushers = 8

// flush brings a directory that was just built to the disk, with all in it: what comes
// up empty after a power cut would be taken for the server's own, and be kept. It begins
// with the writing of all files, so that the disk need not wait for each.
func (b *Builder) flush(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var files, dirs []string
	if err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			dirs = append(dirs, p)
		case d.Type().IsRegular():
			files = append(files, p)
		}
		return nil
	}); err != nil {
		return err
	}
	begin := func(f *os.File) error { // what cannot be begun is done as a whole below
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		return nil
	}
	var closed atomic.Bool // where a template lets nobody read a file, all of its filesystem is flushed
	for _, step := range []struct {
		paths []string
		do    func(*os.File) error
	}{{files, begin}, {files, b.sync}, {dirs, b.syncDir}} {
		if err := b.eachOpen(ctx, root, step.paths, &closed, step.do); err != nil {
			return err
		}
	}
	if closed.Load() {
		return wholly(root)
	}
	return nil
}

// syncDir flushes a directory. A filesystem that knows no such thing, as some over a network,
// has nothing to flush.
func (b *Builder) syncDir(f *os.File) error {
	err := b.sync(f)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// eachOpen does something with files and directories, several at once; the first error
// ends all. Those that may not be read are left out, and noted in closed.
func (b *Builder) eachOpen(ctx context.Context, root *os.Root, paths []string, closed *atomic.Bool, do func(*os.File) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan string, len(paths))
	for _, p := range paths {
		next <- p
	}
	close(next)
	var workers sync.WaitGroup
	for range min(flushers, len(paths)) {
		workers.Go(func() {
			for p := range next {
				if ctx.Err() != nil {
					return
				}
				f, err := root.Open(p)
				if errors.Is(err, fs.ErrPermission) {
					closed.Store(true)
					err = nil
				} else if err == nil {
					err = errors.Join(do(f), f.Close())
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// wholly flushes the filesystem that a directory is on.
func wholly(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(pathError("flush", f, unix.Syncfs(int(f.Fd()))), f.Close())
}

// flushEntries brings to the disk that a directory has its place, and those above it up
// to the data directory.
func (b *Builder) flushEntries(dir string) error {
	for dir != b.data && len(dir) > len(b.data) {
		dir = filepath.Dir(dir)
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(b.syncDir(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
