// Package diskusage measures the size of directories with little load on the disk.
//
// File systems keep no size of a directory, so the directory is walked. These rules bound the
// cost:
//
//   - A node runs one walk at a time for limits and one for metrics. After each walk there is
//     a pause of several times its duration.
//   - A walk pauses regularly. A watched directory is then left alone for many times the
//     duration of its own walk, so that large directories are measured less often,
//     independent of the number of others.
//   - It reads no content, follows no links, and counts a file with several names once.
//
// The result is an estimate and no quota: files may grow between two walks.
package diskusage

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// walkBatch is the number of files between two pauses of a walk, and walkPause their duration.
	walkBatch = 512
	walkPause = time.Millisecond
	// pauseFactor is the pause before a directory is measured again, as a multiple of the duration
	// of its walk, within the two bounds.
	pauseFactor        = 50
	minPause, maxPause = 2 * time.Second, 5 * time.Minute
	// sharedPauseFactor is the pause of all watches after a walk, as a multiple of its duration. So they
	// use at most a quarter of the time together.
	sharedPauseFactor = 3
	// remeasureAfter is how long WatchAll leaves a directory alone, and newNamesInterval how often it
	// looks for new ones. allPauseFactor is its pause as a multiple of the duration of a walk, at
	// most maxPause, so that one huge directory does not delay the others.
	remeasureAfter, newNamesInterval = time.Minute, 5 * time.Second
	allPauseFactor                   = 49
	// block is the unit in which the kernel counts a file's space, in bytes.
	block = 512
)

// Meter measures directories, one at a time. Create it with NewMeter.
type Meter struct {
	// walking holds a value during a walk for Watch.
	walking chan struct{}
	// walk measures directories once. Tests replace it.
	walk func(ctx context.Context, dirs []string) (bytes int64, err error)
}

// NewMeter returns a Meter.
func NewMeter() *Meter { return &Meter{walking: make(chan struct{}, 1), walk: walk} }

// Watch measures some directories together repeatedly until ctx ends, and calls found with
// their size in bytes each time.
func (m *Meter) Watch(ctx context.Context, dirs []string, found func(used int64)) {
	for {
		used, took, err := m.measureAlone(ctx, dirs)
		if err == nil {
			found(used)
		}
		if !pause.For(ctx, min(max((pauseFactor-sharedPauseFactor)*took, minPause), maxPause)) {
			return
		}
	}
}

// measureAlone waits for its turn, measures, and pauses. took is the duration of the walk.
func (m *Meter) measureAlone(ctx context.Context, dirs []string) (used int64, took time.Duration, err error) {
	select {
	case m.walking <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	defer func() { <-m.walking }()
	began := time.Now()
	used, err = m.walk(ctx, dirs)
	took = time.Since(began)
	pause.For(ctx, sharedPauseFactor*took)
	return used, took, err
}

// WatchAll measures the directories of each name repeatedly until ctx ends and calls found with
// their size in bytes. It calls all every few seconds and measures a new name soon. After each
// walk it pauses for 49 times its duration, at most five minutes. It does not wait for Watch.
func (m *Meter) WatchAll(ctx context.Context, all func() map[string][]string, found func(name string, used int64)) {
	measured := map[string]time.Time{}
	for {
		names := all()
		maps.DeleteFunc(measured, func(name string, _ time.Time) bool { return names[name] == nil })
		for name, dirs := range names {
			began := time.Now()
			if at, ok := measured[name]; ok && began.Sub(at) < remeasureAfter {
				continue
			}
			used, err := m.walk(ctx, dirs)
			measured[name] = began
			if err == nil {
				found(name, used)
			}
			if !pause.For(ctx, min(allPauseFactor*time.Since(began), maxPause)) {
				return
			}
		}
		if !pause.For(ctx, newNamesInterval) {
			return
		}
	}
}

func walk(ctx context.Context, dirs []string) (int64, error) {
	s := sum{ctx: ctx, seen: map[[2]uint64]bool{}}
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, s.add); err != nil {
			return 0, err
		}
	}
	return s.bytes, nil
}

// sum is a running walk.
type sum struct {
	ctx   context.Context
	bytes int64
	files int
	// seen are the files with several names, by device and inode.
	seen map[[2]uint64]bool
}

func (s *sum) add(_ string, d fs.DirEntry, err error) error {
	if s.files++; s.files%walkBatch == 0 && !pause.For(s.ctx, walkPause) {
		return s.ctx.Err()
	}
	if err != nil {
		return skip(d, err)
	}
	info, err := d.Info()
	if err != nil {
		return skip(d, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if st.Nlink > 1 && !info.IsDir() {
		id := [2]uint64{uint64(st.Dev), st.Ino}
		if s.seen[id] {
			return nil
		}
		s.seen[id] = true
	}
	s.bytes += st.Blocks * block
	return nil
}

// skip ignores what does not exist any more or cannot be read.
func skip(d fs.DirEntry, err error) error {
	if d != nil && d.IsDir() && !errors.Is(err, fs.ErrNotExist) {
		return fs.SkipDir
	}
	return nil
}
