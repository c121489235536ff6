package journal

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// reserveName is a file that reserves disk space for entries. It is deleted when the disk is
// full, so that entries can still be written.
const reserveName = "reserve"

// reserveBytes is enough for some dozens of entries. When a file cannot be appended to, it is
// replaced, which frees more space than it needs.
const reserveBytes = 256 << 10

func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// makeReserve creates the reserve if the disk has space for more than that. Every successful
// replacement retries it.
func (j *Journal) makeReserve() {
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

// freeReserve deletes the reserve and reports whether that freed space.
func (j *Journal) freeReserve() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	spent := j.reserved && os.Remove(filepath.Join(j.dir, reserveName)) == nil
	j.reserved = false
	return spent
}
