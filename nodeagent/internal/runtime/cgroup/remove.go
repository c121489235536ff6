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
	// removeTimeout limits the attempts to remove an empty group.
	removeTimeout = 2 * time.Second
	// minRemovePause is the first pause between attempts, which doubles up to maxRemovePause.
	minRemovePause, maxRemovePause = time.Millisecond, 100 * time.Millisecond
)

// removal removes a group whose processes have ended. The kernel may refuse that for a moment
// after the group is empty. The zero value is ready.
type removal struct {
	began time.Time
	wait  time.Duration
}

// try removes the group and its subgroups, or pauses before the next attempt. done is true if the
// group is removed or removeTimeout has passed.
func (r *removal) try(ctx context.Context, dir string) (done bool, err error) {
	err = prune(dir)
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return true, nil
	case !errors.Is(err, unix.EBUSY):
		return false, err
	case r.began.IsZero():
		r.began, r.wait = time.Now(), minRemovePause
	case time.Since(r.began) > removeTimeout:
		return true, nil
	}
	pause.For(ctx, r.wait)
	r.wait = min(2*r.wait, maxRemovePause)
	return false, nil
}

// prune removes a group and its subgroups, which its processes may have created. The kernel
// removes only groups without subgroups.
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
