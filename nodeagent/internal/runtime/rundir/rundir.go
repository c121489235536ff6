// Package rundir manages the directory for files that runs need only until the host restarts:
// inputs, process ids, exit codes. It should be in memory, where creating a file is ten to a
// hundred times faster than on a disk.
//
// Invariants:
//   - It is always reachable as "run" in the data directory, by a symlink if it is elsewhere. An
//     agent with another setting finds the files of its predecessor.
//   - It moves only while it is empty.
//   - A copied data directory does not use the original's run directory.
package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Open creates the run directory of a data directory as below/name, or inside data if below is
// empty. moved is true for a copied data directory and after a restart of the host. If the
// directory cannot move because it is in use, Open logs that. It returns Invalid, with what to
// do, if the directory cannot be created.
func Open(data, below, name string, moved bool, log *slog.Logger) error {
	path := filepath.Join(data, "run")
	want := ""
	if below != "" {
		abs, err := filepath.Abs(below)
		if err != nil {
			return unusable(below, err)
		}
		want = filepath.Join(abs, name)
	}
	is, err := os.Readlink(path)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, unix.EINVAL): // a directory and not a symlink
		is = ""
	default:
		return unusable(path, err)
	}
	if is != "" && moved {
		if err := os.Remove(path); err != nil {
			return unusable(path, err)
		}
	}
	if is != want {
		if err := removeEmpty(path); err != nil {
			if errors.Is(err, unix.ENOTEMPTY) {
				log.Warn("the run directory is in use, so it does not move: restart the agent when it is empty", "is", path, "leadsTo", is)
				return nil
			}
			return unusable(path, err)
		}
	}
	if want == "" {
		return unusable(path, os.MkdirAll(path, 0o700))
	}
	if err := os.MkdirAll(want, 0o700); err != nil {
		return unusable(want, err)
	}
	if err := os.Symlink(want, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return unusable(path, err)
	}
	return nil
}

// removeEmpty removes an empty directory and the symlink to it. A missing one is fine.
func removeEmpty(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		err, target = nil, path
	}
	for _, p := range []string{target, path} {
		if err == nil {
			err = os.Remove(p)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

func unusable(path string, err error) error {
	if err == nil {
		return nil
	}
	return &errs.Error{
		Op: "rundir.Open", Kind: errs.Invalid, Field: "run-dir", Err: err,
		Message: fmt.Sprintf("the run directory %s cannot be used (%v): choose another one with run-dir, or clear it to use the data directory", path, err),
	}
}
