package proctest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/proctest"
)

// Without AwaitUnlocked each of them fails within a few rounds.
func TestAClosedFileCanBeLockedAgainWhileOthersFork(t *testing.T) {
	for name, lock := range map[string]func(*os.File) error{
		"flock": func(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) },
		"open file": func(f *os.File) error {
			return syscall.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var forking sync.WaitGroup
			for range 4 {
				forking.Go(func() {
					for ctx.Err() == nil {
						_ = exec.CommandContext(ctx, "true").Run()
					}
				})
			}
			t.Cleanup(func() { cancel(); forking.Wait() })
			dir := t.TempDir()
			for range 300 {
				f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				if err := lock(f); err != nil {
					t.Fatal(err)
				}
				_ = f.Close()
				proctest.AwaitUnlocked(t, filepath.Join(dir, "l*"))
			}
		})
	}
}
