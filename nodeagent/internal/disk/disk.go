// Package disk measures what directories hold, so gently that nobody else on the
// disk notices.
//
// The file system keeps no sum of a directory, so it is walked. What bounds the cost:
//
//   - On the whole node one walk is under way at a time.
//   - A walk rests again and again, and a watched directory is left alone for many times
//     as long as its walk took: a large one is looked at less often.
//   - No content is read, no link followed, and a file with many names counted once.
//
// What it gives is a close figure and no quota: between two walks more may be written.
package disk

import (
	"context"
	"errors"
	"io/fs"
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
	// block is the unit the kernel counts a file's space in.
	block = 512
)

// walking admits one walk at a time.
type walking chan struct{}

// Meter measures directories, one at a time. Make it with NewMeter.
type Meter struct{ walking walking }

// NewMeter makes a meter.
func NewMeter() *Meter { return &Meter{walking: make(walking, 1)} }

// Watch measures some directories together, again and again until ctx ends, and tells
// when they hold more than so many bytes, each time it is found.
func (m *Meter) Watch(ctx context.Context, dirs []string, limit int64, exceeded func(used int64)) {
	for {
		began := time.Now()
		used, err := m.Used(ctx, dirs...)
		if err == nil && used > limit {
			exceeded(used)
		}
		if !pause.For(ctx, min(max(between*time.Since(began), soonest), seldomest)) {
			return
		}
	}
}

// Used is what directories take of their disk together, in bytes. What is gone by the
// time it is looked at counts nothing. Canceled when ctx ends first.
func (m *Meter) Used(ctx context.Context, dirs ...string) (int64, error) {
	select {
	case m.walking <- struct{}{}:
		defer func() { <-m.walking }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
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
