package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestReadOnlyDirectoriesAreRemoved(t *testing.T) {
	b := newBench(t)
	must(t, os.Chmod(filepath.Dir(b.data), 0o755), os.Chmod(b.data, 0o755), os.Mkdir(filepath.Join(b.data, "running"), 0o755))
	as := func(do func()) { do() }
	if isRoot(t) { // permissions do not apply to root
		must(t, os.Chown(filepath.Join(b.data, "running"), stranger, stranger))
		as = func(do func()) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // the thread ends with the goroutine
				if err := errors.Join(unix.Setfsgid(stranger), unix.Setfsuid(stranger)); err != nil {
					t.Error(err)
				}
				do()
			}()
			<-done
		}
	}
	dir := b.builder.Dir(placement(), fleet.Plan{})
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.Mkdir(outside, 0o750))
	as(func() {
		for _, mode := range []fs.FileMode{0o555, 0o000, 0o300} {
			unreadable := filepath.Join(dir, "cache", "unreadable")
			err := errors.Join(
				os.MkdirAll(unreadable, 0o755), os.WriteFile(filepath.Join(unreadable, "x"), nil, 0o400),
				os.Symlink(outside, filepath.Join(dir, "cache", "link")),
				os.Chmod(unreadable, mode), os.Chmod(filepath.Dir(unreadable), 0o555), os.Chmod(dir, 0o555),
			)
			if err != nil {
				t.Error(err)
			}
			if err := b.builder.Remove(placement(), fleet.Plan{}); err != nil {
				t.Errorf("mode %v: %v", mode, err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("mode %v: it still exists: %v", mode, err)
			}
		}
	})
	if fi, err := os.Stat(outside); err != nil || fi.Mode().Perm() != 0o750 {
		t.Errorf("outside: %v, %v", fi.Mode(), err)
	}
}
