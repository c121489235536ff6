package console

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// slowAfter is how long the maintenance of a log may take before an error is logged.
const slowAfter = 10 * time.Second

func (f *Follower) takeGrown() []followedLog {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]followedLog, 0, len(f.grown))
	for l := range f.grown {
		all = append(all, *l)
	}
	clear(f.grown)
	return all
}

// maintain records the times of logs that grew and limits their size.
func (f *Follower) maintain(grown []followedLog) {
	now := time.Now()
	for _, l := range grown {
		stuck := time.AfterFunc(slowAfter, func() {
			f.log.Error("a disk does not answer: the times and sizes of all logs are not maintained until it does", "path", l.path)
		})
		err := f.maintainLog(l.path, l.limit, now)
		stuck.Stop()
		switch {
		case errors.Is(err, errNoHoles):
			f.warnOnce("the size of logs is not limited: the filesystem cannot discard a part of a file; put the data directory on ext4, xfs, btrfs or tmpfs", "path", l.path)
		case err != nil:
			f.log.Warn("cannot maintain a log", "path", l.path, "error", err)
		}
	}
}

// warnOnce logs a warning the first time it occurs.
func (f *Follower) warnOnce(message string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.warnOnceLocked(message, args...)
}

func (f *Follower) warnOnceLocked(message string, args ...any) {
	if !f.warned[message] {
		f.warned[message] = true
		f.log.Warn(message, args...)
	}
}

// maintainLog records the size of a log and discards what exceeds its limit.
func (f *Follower) maintainLog(path string, limit int64, now time.Time) error {
	fi, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // the log does not exist yet or was removed
	}
	if err := f.stamp(path, fi.Size(), now); err != nil {
		return err
	}
	return trim(path, fi.Size(), limit)
}

// stamp records a log's size. Maintenance and readers call it, one at a time.
func (f *Follower) stamp(path string, size int64, now time.Time) error {
	f.stamping.Lock()
	defer f.stamping.Unlock()
	return stamp(path, size, now, true)
}

// stampNow records when a maintained log reached a size: maintenance is too slow for a reader.
func (f *Follower) stampNow(path string, size int64) {
	f.mu.Lock()
	l, ok := f.logs[path]
	kept := ok && l.maintained
	f.mu.Unlock()
	if !kept {
		return
	}
	if err := f.stamp(path, size, time.Now()); err != nil {
		f.log.Warn("cannot record the times of a log", "path", path, "error", err)
	}
}

// Remove removes a log and its times, if they exist.
func Remove(path string) error {
	var failed error
	for _, p := range []string{path, timesPath(path)} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, errs.WrapAs(errs.Unavailable, "console.Remove", err))
		}
	}
	return failed
}

// Maintain records a log's times and limits its size to limit bytes from now on. seen tells that
// the log's present content was written just now; otherwise its time is unknown.
func (f *Follower) Maintain(path string, limit int64, seen bool) {
	if fi, err := os.Stat(path); err == nil {
		if err := stamp(path, fi.Size(), time.Now(), seen); err != nil {
			f.log.Warn("cannot record the times of a log", "path", path, "error", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.entry(path)
	l.maintained, l.limit, l.lines = true, limit, newLineCounter()
	f.watch(l)
	f.markGrown(l)
}

// Release ends the maintenance that Maintain began, after a last round.
func (f *Follower) Release(path string) {
	f.mu.Lock()
	l, ok := f.logs[path]
	if !ok || !l.maintained {
		f.mu.Unlock()
		return
	}
	last := *l
	l.maintained = false
	delete(f.grown, l)
	f.drop(l)
	f.mu.Unlock()
	f.maintain([]followedLog{last})
}
