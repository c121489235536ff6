// Package rundir is where the agent keeps what a run needs only as long as the host
// is up: inputs, process ids, exit codes. A disk need not see that. Making a file in
// memory costs a tenth to a hundredth of what it costs on a disk.
//
// Invariants:
//   - Within the data directory it is always found as "run", which leads to where it
//     is: an agent with another setting finds what its predecessor left.
//   - It moves only while it is empty.
//   - A copy of a data directory leads nowhere: what it led to is the other's.
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

// Open makes the directory of a data directory, below another one, under a name that
// is nobody else's; with below empty it is a plain directory within. moved is true for
// a copy and after a restart of the host. It logs when the directory stays where it
// was. Invalid, with what to do, when it cannot be made.
func Open(data, below, name string, moved bool, log *slog.Logger) error {
	path := filepath.Join(data, "run")
	want := ""
	if below != "" {
		abs, err := filepath.Abs(below)
		if err != nil {
			return refused(below, err)
		}
		want = filepath.Join(abs, name)
	}
	is, err := os.Readlink(path)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, unix.EINVAL): // a plain directory
		is = ""
	default:
		return refused(path, err)
	}
	if is != "" && moved {
		if err := os.Remove(path); err != nil {
			return refused(path, err)
		}
	}
	if is != want {
		if err := leave(path); err != nil {
			if errors.Is(err, unix.ENOTEMPTY) {
				log.Warn("what runs is kept track of where it was: the run directory moves at a start with nothing in it", "is", path, "leadsTo", is)
				return nil
			}
			return refused(path, err)
		}
	}
	if want == "" {
		return refused(path, os.MkdirAll(path, 0o700))
	}
	if err := os.MkdirAll(want, 0o700); err != nil {
		return refused(want, err)
	}
	if err := os.Symlink(want, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return refused(path, err)
	}
	return nil
}

// leave removes an empty directory with what leads to it; one that is gone is empty.
func leave(path string) error {
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

func refused(path string, err error) error {
	if err == nil {
		return nil
	}
	return &errs.Error{
		Op: "rundir.Open", Kind: errs.Invalid, Field: "run-dir", Err: err,
		Message: fmt.Sprintf("the run directory %s cannot be used (%v): choose another one with run-dir, or let it be in the data directory", path, err),
	}
}
