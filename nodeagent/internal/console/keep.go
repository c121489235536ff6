package console

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// stuckAfter is how long one look at a log may take before somebody is told.
const stuckAfter = 10 * time.Second

func (f *Follower) takeGrown() []followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]followed, 0, len(f.grown))
	for l := range f.grown {
		all = append(all, *l)
	}
	clear(f.grown)
	return all
}

// keep notes the times of logs that grew and bounds them.
func (f *Follower) keep(grown []followed) {
	now := time.Now()
	for _, l := range grown {
		stuck := time.AfterFunc(stuckAfter, func() {
			f.log.Error("a disk does not answer: until it does no log's times are noted, and none is bounded", "path", l.path)
		})
		err := f.keepLog(l.path, l.limit, now)
		stuck.Stop()
		switch {
		case errors.Is(err, errNoHoles):
			f.once("logs are not bounded: a filesystem cannot give back a part of a file; put the data directory on ext4, xfs, btrfs or tmpfs", "path", l.path)
		case err != nil:
			f.log.Warn("a log is not kept as it should be", "path", l.path, "error", err)
		}
	}
}

// once warns of something the first time it is met.
func (f *Follower) once(message string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onceLocked(message, args...)
}

func (f *Follower) onceLocked(message string, args ...any) {
	if !f.told[message] {
		f.told[message] = true
		f.log.Warn(message, args...)
	}
}

// keepLog notes how far a log had come and gives back what is beyond its limit.
func (f *Follower) keepLog(path string, limit int64, now time.Time) error {
	fi, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // not there yet, or any more
	}
	if err := f.stamp(path, fi.Size(), now); err != nil {
		return err
	}
	return trim(path, fi.Size(), limit)
}

// stamp notes that a log has size bytes now. The keeper and those who read do it, one at a time.
func (f *Follower) stamp(path string, size int64, now time.Time) error {
	f.stamping.Lock()
	defer f.stamping.Unlock()
	return stamp(path, size, now, true)
}

// date notes when a log reached a size, if it is kept: the keeper looks only every second.
func (f *Follower) date(path string, size int64) {
	f.mu.Lock()
	l, ok := f.logs[path]
	kept := ok && l.kept
	f.mu.Unlock()
	if !kept {
		return
	}
	if err := f.stamp(path, size, time.Now()); err != nil {
		f.log.Warn("the times of a log are not noted", "path", path, "error", err)
	}
}

// Remove removes a log and its times. One that is not there is no error.
func Remove(path string) error {
	var failed error
	for _, p := range []string{path, timesPath(path)} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, errs.As(errs.Unavailable, "console.Remove", err))
		}
	}
	return failed
}

// Keep has a log's times noted and its size bounded to limit bytes, from now on. Of
// what it holds already the time is told only where seen is true: then it was
// written just now.
func (f *Follower) Keep(path string, limit int64, seen bool) {
	if fi, err := os.Stat(path); err == nil {
		if err := stamp(path, fi.Size(), time.Now(), seen); err != nil {
			f.log.Warn("the times of a log are not noted", "path", path, "error", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.get(path)
	l.kept, l.limit, l.lines = true, limit, newLineCount()
	f.watch(l)
	f.grew(l)
}

// Release ends what Keep began, after a last look.
func (f *Follower) Release(path string) {
	f.mu.Lock()
	l, ok := f.logs[path]
	if !ok || !l.kept {
		f.mu.Unlock()
		return
	}
	last := *l
	l.kept = false
	delete(f.grown, l)
	f.drop(l)
	f.mu.Unlock()
	f.keep([]followed{last})
}
