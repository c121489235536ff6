package proctest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
)

// AwaitUnlocked waits until no process locks any of the files, which are given as patterns of
// filepath.Glob. A child has copies of the files of this process, and with them their locks, until
// it starts its program. So a file that was closed may stay locked for a moment.
func AwaitUnlocked(t testing.TB, patterns ...string) {
	t.Helper()
	await.That(t, "files unlocked", func() string {
		for _, pattern := range patterns {
			paths, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range paths {
				if locked(t, path) {
					return path + " is locked"
				}
			}
		}
		return ""
	})
}

// locked reports whether a process locks the file, with flock or with a lock of an open file.
func locked(t testing.TB, path string) bool {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return true
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // a child may have a copy of this file too
	have := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &have); err != nil {
		t.Fatal(err)
	}
	return have.Type != syscall.F_UNLCK
}
