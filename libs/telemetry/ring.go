package telemetry

import (
	"context"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// DefaultKept is how many records a Ring keeps unless told otherwise.
const DefaultKept = 2000

// MaxKept is how many it keeps at most.
const MaxKept = 100_000

// Record is one record of a service's log. Attributes that are named like a secret have
// lost their value.
type Record struct {
	// Seq is higher than that of every record before it in its Ring. It is about the number of
	// microseconds since 1970, so that records of several processes are put in order by it.
	Seq int64 `json:"seq"`
	// TS is when it was written, in milliseconds since 1970.
	TS int64 `json:"ts"`
	// Level is DEBUG, INFO, WARN or ERROR.
	Level string `json:"level"`
	// Logger is the package that wrote it, below Orrery's module: "apigateway/internal/rest".
	Logger string `json:"logger"`
	// Thread names the process that wrote it.
	Thread  string `json:"thread"`
	Message string `json:"message"`
	// Throwable is the text of the error it tells of; empty when there is none.
	Throwable string `json:"throwable,omitempty"`
	// MDC are its other attributes; those in a group are named group.attribute.
	MDC map[string]string `json:"mdc,omitempty"`
}

// levels are the names of levels, the lowest first.
var levels = [...]string{"DEBUG", "INFO", "WARN", "ERROR"}

// RecordFilter chooses records. The zero value takes all.
type RecordFilter struct {
	// Level is the lowest that is taken: DEBUG, INFO, WARN or ERROR; empty takes all.
	Level string
	// Logger is how the name of the logger begins.
	Logger string
}

// ParseRecordFilter reads a filter as people write it. Malformed when there is no such level.
func ParseRecordFilter(level, logger string) (RecordFilter, error) {
	f := RecordFilter{Level: strings.ToUpper(strings.TrimSpace(level)), Logger: strings.TrimSpace(logger)}
	switch f.Level {
	case "TRACE", "ALL":
		f.Level = levels[0]
	case "WARNING":
		f.Level = "WARN"
	}
	if f.Level != "" && rank(f.Level) < 0 {
		return f, &errs.Error{Kind: errs.Malformed, Field: "level", Message: "level must be DEBUG, INFO, WARN or ERROR"}
	}
	return f, nil
}

// rank is a level's place among all; -1 when there is no such level.
func rank(level string) int {
	for n, l := range levels {
		if l == level {
			return n
		}
	}
	return -1
}

// Takes reports whether a record is chosen.
func (f RecordFilter) Takes(r Record) bool {
	return (f.Level == "" || rank(r.Level) >= rank(f.Level)) && strings.HasPrefix(r.Logger, f.Logger)
}

// Ring keeps the last records of a log, for those who read it while the process runs. Who
// follows it reads at its own pace: nobody is waited for, and who was too slow is told that
// something is missing. It is safe for concurrent use.
type Ring struct {
	name string
	size int

	// mu guards what follows.
	mu sync.Mutex
	// kept are the records, from the one at oldest on and around.
	kept   []Record
	oldest int
	// last is the highest number given, gone the highest of those not kept. At first both are
	// when the ring was made: what was before is not known.
	last, gone int64
	more       chan struct{} // closed and renewed with every record
}

// NewRing makes a ring of size records, 0 for DefaultKept. name is told as their Thread.
func NewRing(name string, size int) *Ring {
	if size <= 0 {
		size = DefaultKept
	}
	now := time.Now().UnixMicro()
	return &Ring{name: name, size: min(size, MaxKept), last: now, gone: now, more: make(chan struct{})}
}

// Capacity is how many records it keeps at most, Size how many it has.
func (r *Ring) Capacity() int { return r.size }

// Size is how many records there are now.
func (r *Ring) Size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept)
}

// add numbers a record and keeps it in place of the oldest.
func (r *Ring) add(rec Record, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last+1, at.UnixMicro()) // also when the clock was set back
	rec.Seq, rec.TS, rec.Thread = r.last, at.UnixMilli(), r.name
	if len(r.kept) < r.size {
		r.kept = append(r.kept, rec)
	} else {
		r.gone = r.kept[r.oldest].Seq
		r.kept[r.oldest] = rec
		r.oldest = (r.oldest + 1) % r.size
	}
	close(r.more)
	r.more = make(chan struct{})
}

// at is the n-th record from the oldest.
func (r *Ring) at(n int) Record { return r.kept[(r.oldest+n)%len(r.kept)] }

// Last are the last records that a filter takes, at most n, the oldest first.
func (r *Ring) Last(f RecordFilter, n int) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken(f, r.first(f, n), len(r.kept))
}

// first is the place of the first of the last n records that a filter takes.
func (r *Ring) first(f RecordFilter, n int) int {
	from := len(r.kept)
	for at := from; at > 0 && n > 0; {
		at--
		if f.Takes(r.at(at)) {
			from, n = at, n-1
		}
	}
	return from
}

// taken are the chosen ones of a part of the records.
func (r *Ring) taken(f RecordFilter, from, to int) []Record {
	out := []Record{}
	for ; from < to; from++ {
		if rec := r.at(from); f.Takes(rec) {
			out = append(out, rec)
		}
	}
	return out
}

// page is what a Ring has after a number.
type page struct {
	records []Record
	// next is the number to read on from.
	next int64
	// gap is true when there were records after the number that are not kept, or the number is of
	// a time to come: whoever gave it had another clock, and what it has seen is not known.
	gap bool
	// more is closed when there is more; nil when there is already.
	more <-chan struct{}
}

// after are the records after a number that a filter takes, of the next n.
func (r *Ring) after(seq int64, f RecordFilter, n int) page {
	r.mu.Lock()
	defer r.mu.Unlock()
	gap := seq < r.gone
	if seq > r.last { // of a ring that logged more, or by a clock that is ahead
		gap = seq > time.Now().UnixMicro()
		seq = r.last
	}
	from := sort.Search(len(r.kept), func(i int) bool { return r.at(i).Seq > seq })
	to := min(from+n, len(r.kept))
	p := page{records: r.taken(f, from, to), next: max(seq, r.gone), gap: gap}
	if to > from {
		p.next = r.at(to - 1).Seq
	}
	if to == len(r.kept) {
		p.more = r.more
	}
	return p
}

// tail is where who wants the last n chosen records begins to read.
func (r *Ring) tail(f RecordFilter, n int) (seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from := r.first(f, n); from < len(r.kept) {
		return r.at(from).Seq - 1
	}
	return r.last
}

// Follower reads a Ring at its own pace. It is for one goroutine.
type Follower struct {
	ring   *Ring
	filter RecordFilter
	next   int64
}

// Follow reads on after a number, or when that is 0 from the last n records that the filter takes.
func (r *Ring) Follow(f RecordFilter, after int64, n int) *Follower {
	if after == 0 {
		after = r.tail(f, n)
	}
	return &Follower{ring: r, filter: f, next: after}
}

// followPage is how many records are looked at, at once.
const followPage = 256

// Next waits for records, at most so long: then there are none. gap is true when records
// before them are missing: they are not kept any more, or the number to begin after was of a
// time to come. Canceled when ctx ends.
func (f *Follower) Next(ctx context.Context, most time.Duration) (records []Record, gap bool, err error) {
	silent := time.NewTimer(most)
	defer silent.Stop()
	for {
		p := f.ring.after(f.next, f.filter, followPage)
		f.next = p.next
		if len(p.records) > 0 || p.gap {
			return p.records, p.gap, nil
		}
		if p.more == nil {
			continue
		}
		select {
		case <-p.more:
		case <-silent.C:
			return nil, false, nil
		case <-ctx.Done():
			return nil, false, errs.As(errs.Canceled, "telemetry.Next", ctx.Err())
		}
	}
}
