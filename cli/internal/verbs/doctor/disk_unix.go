//go:build linux || darwin

package doctor

import "syscall"

// diskSpace returns the free and the total bytes of the disk that has a directory.
func diskSpace(dir string) (free, total int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
