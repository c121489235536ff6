package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// removePatience is how long the kernel is asked to let go of a group nobody is in any more.
	removePatience = 2 * time.Second
	// removeAgain is the pause before it is asked again, which doubles up to removeSeldom.
	removeAgain, removeSeldom = time.Millisecond, 100 * time.Millisecond
)

// removal is the removing of a group whose processes have gone. The kernel may need a
// moment to let the last of them go after it stopped counting. Its zero value is ready.
type removal struct {
	began time.Time
	wait  time.Duration
}

// try removes the group and those below it, or pauses before it is to be tried again.
// done is true when it is gone, or has been tried for removePatience.
func (r *removal) try(ctx context.Context, dir string) (done bool, err error) {
	err = prune(dir)
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return true, nil
	case !errors.Is(err, unix.EBUSY):
		return false, err
	case r.began.IsZero():
		r.began, r.wait = time.Now(), removeAgain
	case time.Since(r.began) > removePatience:
		return true, nil
	}
	pause.For(ctx, r.wait)
	r.wait = min(2*r.wait, removeSeldom)
	return false, nil
}

// prune removes a group with the groups below it, which those in it may have made: the
// kernel lets no group go that has others.
func prune(dir string) error {
	err := os.Remove(dir)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := prune(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(dir)
}
