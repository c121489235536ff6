package blob

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// incoming is the directory of unfinished writes.
const incoming = "incoming"

// abandoned is the age from which an unfinished write counts as interrupted. It exceeds the
// duration of any write, because replicas may share the directory.
const abandoned = 6 * time.Hour

// putAside is how long damaged files are kept for inspection.
const putAside = 30 * 24 * time.Hour

// openSpool creates the directory and removes the files of interrupted writes.
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

// removeOld removes the entries of a directory that were last changed before a time.
// Younger ones may belong to another replica.
func removeOld(dir string, before time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || fi.ModTime().After(before) {
			continue // possibly removed by another process
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil { // a temporary entry may be a directory
			return err
		}
	}
	return nil
}

// clockOf returns the time of the clock that stamps the files of a directory. On a network
// file system, that is another host's clock.
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
