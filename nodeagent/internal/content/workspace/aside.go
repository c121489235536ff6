package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// StaticDir returns the directory of a static instance.
func (b *Builder) StaticDir(g fleet.GroupName, name string) string {
	return filepath.Join(b.StaticRoot(), string(g), name)
}

// Install makes a complete directory the directory of a static instance, which must not exist. It
// flushes it to the disk first, and calls progress, concurrently, after each step of that. Both must be on the same
// filesystem.
func (b *Builder) Install(ctx context.Context, complete, dir string, progress func()) error {
	const op = "workspace.Install"
	if err := b.flush(ctx, complete, progress); err != nil {
		return errs.WrapAs(errs.Unavailable, op, err)
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, parentMode); err != nil {
		return errs.WrapAs(errs.Unavailable, op, err)
	}
	spreadSubdirs(parent)
	err := os.Rename(complete, dir)
	return errs.WrapAs(errs.Unavailable, op, errors.Join(err, b.flushParents(dir)))
}

// Flush flushes a directory to the disk, with all files in it.
func (b *Builder) Flush(ctx context.Context, dir string) error {
	return errs.WrapAs(errs.Unavailable, "workspace.Flush", b.flush(ctx, dir, func() {}))
}

// Replace exchanges a complete and flushed directory and the directory of a static instance in one step. If the
// instance has no directory, it is Install. Both must be on the same filesystem, which must be able to
// exchange names. After an error the directory of the instance is as it was.
func (b *Builder) Replace(ctx context.Context, complete, dir string) error {
	const op = "workspace.Replace"
	there, err := exists(dir)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, op, err)
	}
	if !there {
		return b.Install(ctx, complete, dir, func() {})
	}
	if err := unix.Renameat2(unix.AT_FDCWD, complete, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE); err != nil {
		return errs.WrapAs(errs.Unavailable, op, err)
	}
	_ = b.flushParents(dir) // without it, a power failure leaves one of the two directories too
	return nil
}

// SetAside renames the directory of a static instance to another path on the same filesystem. It does
// nothing if the directory does not exist.
func (b *Builder) SetAside(dir, to string) error {
	const op = "workspace.SetAside"
	there, err := exists(dir)
	if err != nil || !there {
		return errs.WrapAs(errs.Unavailable, op, err)
	}
	if err := os.MkdirAll(filepath.Dir(to), privateMode); err != nil {
		return errs.WrapAs(errs.Unavailable, op, err)
	}
	err = os.Rename(dir, to)
	return errs.WrapAs(errs.Unavailable, op, errors.Join(err, b.flushParents(to), b.flushParents(dir)))
}

// RemoveTree removes a directory tree, also if parts of it are read-only.
func RemoveTree(dir string) error {
	return errs.WrapAs(errs.Unavailable, "workspace.RemoveTree", removeAll(dir))
}
