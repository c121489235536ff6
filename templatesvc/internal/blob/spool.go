package blob

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// incoming is the directory of what is under way.
const incoming = "incoming"

// abandoned is the age from which an unfinished write is taken for interrupted:
// longer than any write may take, since replicas may share the directory.
const abandoned = 6 * time.Hour

// putAside is for how long what was put aside is kept, for whoever wants to look at it.
const putAside = 30 * 24 * time.Hour

// openSpool makes the directory and clears what interrupted writes left.
func openSpool(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	now, err := clockOf(dir)
	if err != nil {
		return err
	}
	return removeOld(dir, now.Add(-abandoned))
}

// removeOld removes what is in a directory and older than a moment. What is younger may be
// another replica's.
func removeOld(dir string, before time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || fi.ModTime().After(before) {
			continue // perhaps gone meanwhile
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil { // a spool may be a directory
			return err
		}
	}
	return nil
}

// clockOf is the time by the clock that stamps a directory's files, which may be
// another host's.
func clockOf(dir string) (time.Time, error) {
	f, err := os.CreateTemp(dir, "clock-*")
	if err != nil {
		return time.Time{}, err
	}
	fi, err := f.Stat()
	err = errors.Join(err, f.Close())
	if removeErr := os.Remove(f.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	if err != nil {
		return time.Time{}, err
	}
	return fi.ModTime(), nil
}
