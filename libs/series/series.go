// Package series keeps the last day of a few figures in bounded memory: a value for each 15
// seconds of the last hour, each minute of the last six, and each four minutes of the day.
//
// It keeps what it was told since it was made, and nothing on disk: whoever reads it learns
// since when there is something. A time nobody told a figure for has none, which is not 0.
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

// spans are how exactly how much of the past is kept, the finest first. Each covers windows
// that are no longer than it is.
var spans = [...]struct{ step, length time.Duration }{
	{Step, time.Hour}, {time.Minute, 6 * time.Hour}, {4 * time.Minute, 24 * time.Hour},
}

// Ring keeps the past of some figures, in 4 bytes a value and 4 a time: 20 KiB for four of
// them. It is safe for concurrent use.
type Ring struct {
	names []string

	mu     sync.Mutex
	levels [len(spans)]level
	// since is when the first sample came that is still kept; zero before any.
	since time.Time
}

// New makes a ring for figures of these names.
func New(names ...string) *Ring {
	r := &Ring{names: names}
	for n, s := range spans {
		r.levels[n] = level{
			step: int64(s.step / time.Second), most: int(s.length/s.step) + 1, // the first and the last may be there in part
			taken: make([]int, len(names)),
		}
	}
	return r
}

// Add takes a sample: one value for each name, NaN for one that is not known. Samples come in
// order of time; one that is older than the last tells of a clock that was set back, and ends
// what was kept.
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

// Every calls take at once, and then in the middle of each Step until ctx ends, so that none
// goes without a sample.
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

// level is the past in steps of one length.
type level struct {
	step int64 // seconds
	most int
	// slots are the steps since 1970 that there are values for, and values those, so many for
	// a slot as there are figures. Both grow up to most slots; from then on the newest stands
	// where the oldest stood, before next.
	slots  []int32
	values []float32
	next   int
	// taken counts the samples that the newest value of each figure is the mean of.
	taken []int
}

// add takes a sample; false means that what was there before is forgotten.
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

// last is where the newest slot stands; -1 before there is one.
func (l *level) last() int {
	if len(l.slots) < l.most {
		return len(l.slots) - 1
	}
	return (l.next + l.most - 1) % l.most
}

// oldest is when the oldest slot begins; there is one.
func (l *level) oldest() time.Time {
	first := 0
	if len(l.slots) == l.most {
		first = l.next
	}
	return time.Unix(int64(l.slots[first])*l.step, 0)
}

// room makes place for a slot that has no values yet, and tells where.
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
