// Package disk measures what directories hold, so gently that nobody else on the
// disk notices.
//
// The file system keeps no sum of a directory, so it is walked. What bounds the cost:
//
//   - On the whole node one walk is under way at a time for limits and one for figures, and
//     after each there is none of its kind for some times as long as it took.
//   - A walk rests again and again, and a watched directory is left alone for many times
//     as long as its own walk took: a large one is looked at less often. How many others
//     there are does not count: with many each has its turn.
//   - No content is read, no link followed, and a file with many names counted once.
//
// What it gives is a close figure and no quota: between two walks more may be written.
package disk

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
	// batch is how many files are looked at between two rests, rest how long one is.
	batch = 512
	rest  = time.Millisecond
	// between is how many times as long as it took a directory is left alone after a
	// walk, within the two bounds.
	between            = 50
	soonest, seldomest = 2 * time.Second, 5 * time.Minute
	// breath is how many times as long as it took nobody walks after a watched walk, so
	// that many directories take no more than a quarter of the time together.
	breath = 3
	// surveyEvery is how long WatchAll leaves a directory alone, surveyLook how often it looks
	// for new ones, and surveyRest how many times as long as a walk took it rests afterwards,
	// but for at most seldomest: one huge directory does not keep the others from their turn.
	surveyEvery, surveyLook = time.Minute, 5 * time.Second
	surveyRest              = 49
	// block is the unit the kernel counts a file's space in.
	block = 512
)

// walking admits one walk at a time.
type walking chan struct{}

// Meter measures directories, one at a time. Make it with NewMeter.
type Meter struct {
	walking walking
	// walk is one walk through directories.
	walk func(ctx context.Context, dirs []string) (bytes int64, err error)
}

// NewMeter makes a meter.
func NewMeter() *Meter { return &Meter{walking: make(walking, 1), walk: walk} }

// Watch measures some directories together, again and again until ctx ends, and tells how
// many bytes they hold each time.
func (m *Meter) Watch(ctx context.Context, dirs []string, found func(used int64)) {
	for {
		used, took, err := m.turn(ctx, dirs)
		if err == nil {
			found(used)
		}
		if !pause.For(ctx, min(max((between-breath)*took, soonest), seldomest)) {
			return
		}
	}
}

// turn waits for its turn, measures, and has everybody rest. took is how long the walk
// itself was.
func (m *Meter) turn(ctx context.Context, dirs []string) (used int64, took time.Duration, err error) {
	if err := m.walking.begin(ctx); err != nil {
		return 0, 0, err
	}
	defer m.walking.end()
	began := time.Now()
	used, err = m.walk(ctx, dirs)
	took = time.Since(began)
	pause.For(ctx, breath*took)
	return used, took, err
}

// WatchAll measures the directories of each of some names, again and again until ctx ends,
// and calls found with how many bytes they hold. It calls all every few seconds, and measures
// a new name soon. It rests for 49 times as long as each walk took, at most five minutes, and
// does not wait for Watch.
func (m *Meter) WatchAll(ctx context.Context, all func() map[string][]string, found func(name string, used int64)) {
	measured := map[string]time.Time{}
	for {
		names := all()
		maps.DeleteFunc(measured, func(name string, _ time.Time) bool { return names[name] == nil })
		for name, dirs := range names {
			began := time.Now()
			if at, ok := measured[name]; ok && began.Sub(at) < surveyEvery {
				continue
			}
			used, err := m.walk(ctx, dirs)
			measured[name] = began
			if err == nil {
				found(name, used)
			}
			if !pause.For(ctx, min(surveyRest*time.Since(began), seldomest)) {
				return
			}
		}
		if !pause.For(ctx, surveyLook) {
			return
		}
	}
}

// Used is what directories take of their disk together, in bytes. What is gone by the
// time it is looked at counts nothing. Canceled when ctx ends first.
func (m *Meter) Used(ctx context.Context, dirs ...string) (int64, error) {
	if err := m.walking.begin(ctx); err != nil {
		return 0, err
	}
	defer m.walking.end()
	return m.walk(ctx, dirs)
}

func (w walking) begin(ctx context.Context) error {
	select {
	case w <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w walking) end() { <-w }

func walk(ctx context.Context, dirs []string) (int64, error) {
	s := sum{ctx: ctx, seen: map[[2]uint64]bool{}}
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, s.add); err != nil {
			return 0, err
		}
	}
	return s.bytes, nil
}

// sum is a walk under way.
type sum struct {
	ctx   context.Context
	bytes int64
	files int
	// seen are files with several names, by device and number.
	seen map[[2]uint64]bool
}

func (s *sum) add(_ string, d fs.DirEntry, err error) error {
	if s.files++; s.files%batch == 0 && !pause.For(s.ctx, rest) {
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

// skip passes over what cannot be looked at: it has gone, or is not ours to see.
func skip(d fs.DirEntry, err error) error {
	if d != nil && d.IsDir() && !errors.Is(err, fs.ErrNotExist) {
		return fs.SkipDir
	}
	return nil
}
