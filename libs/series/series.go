// Package series keeps the last day of a few figures in bounded memory: one value per 15 seconds
// of the last hour, per minute of the last six hours, and per four minutes of the day.
//
// It keeps only what was added since its creation and stores nothing on disk. Readers learn since
// when there is data. A time without samples has no value, which differs from 0.
package series

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

// Step is the time between two samples.
const Step = 15 * time.Second

// spans are the resolutions and how much of the past each covers, the finest first. Each serves
// windows no longer than its length.
var spans = [...]struct{ step, length time.Duration }{
	{Step, time.Hour}, {time.Minute, 6 * time.Hour}, {4 * time.Minute, 24 * time.Hour},
}

// Ring stores the history of some figures, with 4 bytes per value and per time: 20 KiB for four
// figures. It is safe for concurrent use.
type Ring struct {
	names []string

	mu     sync.Mutex
	levels [len(spans)]level
	// since is the time of the first sample that is still kept. Zero while the ring is empty.
	since time.Time
}

// New returns a ring for figures of these names.
func New(names ...string) *Ring {
	r := &Ring{names: names}
	for n, s := range spans {
		r.levels[n] = level{
			step: int64(s.step / time.Second), most: int(s.length/s.step) + 1, // the first and the last may be partial
			taken: make([]int, len(names)),
		}
	}
	return r
}

// Add records a sample with one value per name, NaN for an unknown one. Samples must be in order
// of time. A sample older than the last one means that the clock was set back, and discards the
// history.
func (r *Ring) Add(at time.Time, values ...float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range r.levels {
		if !r.levels[n].add(at, values) {
			r.since = time.Time{}
		}
	}
	switch oldest := r.levels[len(spans)-1].oldest(); {
	case r.since.IsZero():
		r.since = at
	case oldest.After(r.since):
		r.since = oldest
	}
}

// Every calls take at once and then in the middle of each Step until ctx ends, so that every Step
// gets a sample.
func Every(ctx context.Context, take func(at time.Time)) {
	for {
		now := time.Now()
		take(now)
		next := now.Truncate(Step).Add(Step / 2)
		if !next.After(now) {
			next = next.Add(Step)
		}
		if !pause.For(ctx, next.Sub(now)) {
			return
		}
	}
}

// level is the history at one resolution.
type level struct {
	step int64 // seconds
	most int
	// slots are the numbers of the steps since 1970 that have values. values has one value per
	// figure for each slot. Both grow to most slots; after that the newest replaces the oldest, at
	// next.
	slots  []int32
	values []float32
	next   int
	// taken counts the samples averaged in the newest value of each figure.
	taken []int
}

// add records a sample. kept is false if the previous history was discarded.
func (l *level) add(at time.Time, values []float64) (kept bool) {
	slot, last, kept := int32(at.Unix()/l.step), l.last(), true
	if last >= 0 && l.slots[last] > slot {
		l.slots, l.values, l.next, last, kept = l.slots[:0], l.values[:0], 0, -1, false
	}
	if last < 0 || l.slots[last] != slot {
		last = l.room(slot)
	}
	for n := range l.taken {
		v := math.NaN()
		if n < len(values) {
			v = values[n]
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		mean := &l.values[last*len(l.taken)+n]
		if l.taken[n]++; l.taken[n] == 1 {
			*mean = float32(v)
		} else {
			*mean += (float32(v) - *mean) / float32(l.taken[n])
		}
	}
	return kept
}

// last returns the index of the newest slot, -1 while the level is empty.
func (l *level) last() int {
	if len(l.slots) < l.most {
		return len(l.slots) - 1
	}
	return (l.next + l.most - 1) % l.most
}

// oldest returns the start of the oldest slot. There must be one.
func (l *level) oldest() time.Time {
	first := 0
	if len(l.slots) == l.most {
		first = l.next
	}
	return time.Unix(int64(l.slots[first])*l.step, 0)
}

// room adds a slot without values and returns its index.
func (l *level) room(slot int32) int {
	clear(l.taken)
	at := len(l.slots)
	if at < l.most {
		l.slots = append(l.slots, slot)
		l.values = append(l.values, make([]float32, len(l.taken))...)
	} else {
		at = l.next
		l.next = (l.next + 1) % l.most
		l.slots[at] = slot
	}
	for n := range l.taken {
		l.values[at*len(l.taken)+n] = float32(math.NaN())
	}
	return at
}
