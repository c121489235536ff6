package journal

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// reserveName is a file that keeps room on the disk for entries: when the disk is
// full it is given up, so that what happens then is remembered all the same.
const reserveName = "reserve"

// reserveBytes is room for some dozens of entries. Once a file cannot be added to, it is
// replaced, which gives back more than it takes.
const reserveBytes = 256 << 10

func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// keep makes the reserve where there is none, once the disk has room for more than
// that. It is tried again with every write that succeeds.
func (j *Journal) keep() {
	j.mu.Lock()
	defer j.mu.Unlock()
	var disk unix.Statfs_t
	if j.reserved || unix.Statfs(j.dir, &disk) != nil || int64(disk.Bavail)*disk.Bsize < 2*reserveBytes {
		return
	}
	path := filepath.Join(j.dir, reserveName)
	j.reserved = os.WriteFile(path, make([]byte, reserveBytes), 0o600) == nil
	if !j.reserved {
		_ = os.Remove(path)
	}
}

// spend gives the reserve up and reports whether that made room.
func (j *Journal) spend() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	spent := j.reserved && os.Remove(filepath.Join(j.dir, reserveName)) == nil
	j.reserved = false
	return spent
}
