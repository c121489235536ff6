package s3

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	newPrefix  = "new-"
	lockPrefix = "lock-"
)

// lock is a file that is locked until its process ends, even by a crash.
type lock struct {
	*os.File
	process string // unique ID of the process
}

// newLock creates a lock file. It tries again if another process removes the file as a
// leftover before it is locked.
func newLock(dir string) (*lock, error) {
	for {
		process := rand.Text()
		f, err := os.OpenFile(filepath.Join(dir, lockPrefix+process), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil, full(err)
		}
		l := &lock{f, process}
		locked, err := tryLock(f)
		if locked && err == nil {
			return l, nil
		}
		l.release()
		if err != nil {
			return nil, &errs.Error{
				Op: "objects.New", Kind: errs.Unavailable, Err: err,
				Message: "files in blobs.dir cannot be locked: put it on a file system of this host",
			}
		}
	}
}

// release removes the lock file.
func (l *lock) release() {
	_ = os.Remove(l.Name()) // otherwise the next process removes it
	_ = l.Close()
}

// tryLock tries to lock the file. It returns false if another process has it locked or has
// removed it.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	return st.Nlink > 0, err
}

// sweep removes the downloads of dead processes. A process locks its file before its first
// download, so sweep tests the locks after it has listed the downloads.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	left := map[string][]string{} // paths by process
	for _, e := range entries {
		name, reading := strings.CutPrefix(e.Name(), newPrefix)
		name, locks := strings.CutPrefix(name, lockPrefix)
		if reading || locks {
			process, _, _ := strings.Cut(name, "-")
			left[process] = append(left[process], filepath.Join(dir, e.Name()))
		}
	}
	for process, paths := range left {
		err = errors.Join(err, bury(filepath.Join(dir, lockPrefix+process), paths))
	}
	return err
}

// bury removes the files of a process, unless the process holds its lock.
func bury(lock string, files []string) error {
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err == nil {
		defer f.Close()
		if dead, err := tryLock(f); !dead || err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
