package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// flushers is the number of files flushed concurrently, which lets the disk combine flushes.
const flushers = 8

// flush flushes a new directory to the disk, with all files in it. An empty file after a power
// failure would be taken for the server's own and kept. It first starts the writeback of
// all files, so that the single flushes are short. It calls progress, concurrently, for each file
// that it has begun or ended to flush, and for each directory.
func (b *Builder) flush(ctx context.Context, dir string, progress func()) error {
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
	begin := func(f *os.File) error { // best effort: the real flush follows
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		return nil
	}
	var unreadable atomic.Bool // if templates have unreadable files, the whole filesystem is flushed
	for _, step := range []struct {
		paths []string
		do    func(*os.File) error
	}{{files, begin}, {files, b.sync}, {dirs, b.syncDir}} {
		if err := b.eachOpen(ctx, root, step.paths, &unreadable, func(f *os.File) error {
			err := step.do(f)
			progress()
			return err
		}); err != nil {
			return err
		}
	}
	if unreadable.Load() {
		return syncFilesystem(root)
	}
	return nil
}

// syncDir flushes a directory. It ignores that some filesystems, such as network ones, do not
// support it.
func (b *Builder) syncDir(f *os.File) error {
	err := b.sync(f)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// eachOpen opens files and directories and calls do, concurrently, until the first error. It
// skips unreadable ones, and sets unreadable.
func (b *Builder) eachOpen(ctx context.Context, root *os.Root, paths []string, unreadable *atomic.Bool, do func(*os.File) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(flushers)
	for _, p := range paths {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f, err := root.Open(p)
			if errors.Is(err, fs.ErrPermission) {
				unreadable.Store(true)
				return nil
			}
			if err != nil {
				return err
			}
			return errors.Join(do(f), f.Close())
		})
	}
	return g.Wait()
}

// syncFilesystem flushes the filesystem of a directory.
func syncFilesystem(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	if err = unix.Syncfs(int(f.Fd())); err != nil {
		err = &fs.PathError{Op: "flush", Path: f.Name(), Err: err}
	}
	return errors.Join(err, f.Close())
}

// flushParents flushes the parent directories up to the data directory, so that the directory's
// entry survives a power failure.
func (b *Builder) flushParents(dir string) error {
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
