package telemetry

import (
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// DefaultKept is the default number of records a Ring keeps.
const DefaultKept = 2000

// MaxKept is the maximum number of records a Ring keeps.
const MaxKept = 100_000

// Record is one record of a service's log. The values of attributes with a secret's name are
// masked.
type Record struct {
	// Seq increases with every record of a Ring. It is approximately the number of microseconds
	// since 1970, so that it also orders the records of several processes.
	Seq int64 `json:"seq"`
	// TS is the time of the record, in milliseconds since 1970.
	TS int64 `json:"ts"`
	// Level is DEBUG, INFO, WARN or ERROR.
	Level string `json:"level"`
	// Logger is the package that wrote it, relative to Orrery's module: "apigateway/internal/api".
	Logger string `json:"logger"`
	// Thread names the process that wrote it.
	Thread  string `json:"thread"`
	Message string `json:"message"`
	// Throwable is the text of the record's error, if any.
	Throwable string `json:"throwable,omitempty"`
	// MDC are the other attributes. Those in a group are named group.attribute.
	MDC map[string]string `json:"mdc,omitempty"`
}

// levels are the names of the levels, lowest first.
var levels = [...]string{"DEBUG", "INFO", "WARN", "ERROR"}

// RecordFilter selects records. The zero value selects all.
type RecordFilter struct {
	// Level is the lowest selected level: DEBUG, INFO, WARN or ERROR. Empty selects all.
	Level string
	// Logger is a prefix of the logger's name.
	Logger string
}

// ParseRecordFilter parses a filter in any case. The error is Malformed for an unknown level.
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

// rank returns the index of a level, -1 if it is unknown.
func rank(level string) int { return slices.Index(levels[:], level) }

// Takes reports whether the filter selects a record.
func (f RecordFilter) Takes(r Record) bool {
	return (f.Level == "" || rank(r.Level) >= rank(f.Level)) && strings.HasPrefix(r.Logger, f.Logger)
}

// Ring keeps the last records of a log so that they can be read while the process runs. Followers
// read at their own pace and never block the log. A follower that is too slow learns that records
// are missing. It is safe for concurrent use.
type Ring struct {
	name string
	size int

	// mu guards the fields below.
	mu sync.Mutex
	// kept are the records as a ring buffer that starts at oldest.
	kept   []Record
	oldest int
	// last is the highest Seq assigned, gone the highest Seq no longer kept. Both start with the
	// time at which the ring was created.
	last, gone int64
	more       chan struct{} // closed and renewed with every record
}

// NewRing returns a ring of size records, 0 for DefaultKept. Records get name as their Thread.
func NewRing(name string, size int) *Ring {
	if size <= 0 {
		size = DefaultKept
	}
	now := time.Now().UnixMicro()
	return &Ring{name: name, size: min(size, MaxKept), last: now, gone: now, more: make(chan struct{})}
}

// Capacity is the maximum number of records.
func (r *Ring) Capacity() int { return r.size }

// Size is the current number of records.
func (r *Ring) Size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept)
}

// add assigns a Seq to a record and stores it, replacing the oldest one if the ring is full.
func (r *Ring) add(rec Record, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last+1, at.UnixMicro()) // increases even if the clock was set back
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

// at returns the n-th record, counted from the oldest.
func (r *Ring) at(n int) Record { return r.kept[(r.oldest+n)%len(r.kept)] }

// Last returns the last n records that the filter selects, oldest first.
func (r *Ring) Last(f RecordFilter, n int) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken(f, r.first(f, n), len(r.kept))
}

// first returns the index of the first of the last n records that the filter selects.
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

// taken returns the selected records of a range.
func (r *Ring) taken(f RecordFilter, from, to int) []Record {
	out := []Record{}
	for ; from < to; from++ {
		if rec := r.at(from); f.Takes(rec) {
			out = append(out, rec)
		}
	}
	return out
}

// page is what a Ring contains after a Seq.
type page struct {
	records []Record
	// next is the Seq to continue from.
	next int64
	// gap is true if records after the Seq are no longer kept, or if the Seq is in the future,
	// because then it came from another clock and the position is unknown.
	gap bool
	// more is closed when there are new records. It is nil if there are already more.
	more <-chan struct{}
}

// after returns the selected ones of the next n records after a Seq.
func (r *Ring) after(seq int64, f RecordFilter, n int) page {
	r.mu.Lock()
	defer r.mu.Unlock()
	gap := seq < r.gone
	if seq > r.last { // from another ring or a clock that is ahead
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

// tail returns the Seq from which to read the last n selected records.
func (r *Ring) tail(f RecordFilter, n int) (seq int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from := r.first(f, n); from < len(r.kept) {
		return r.at(from).Seq - 1
	}
	return r.last
}

// Follower reads a Ring at its own pace. It is not safe for concurrent use.
type Follower struct {
	ring   *Ring
	filter RecordFilter
	next   int64
}

// Follow returns a follower that starts after a Seq or, if it is 0, with the last n selected
// records.
func (r *Ring) Follow(f RecordFilter, after int64, n int) *Follower {
	if after == 0 {
		after = r.tail(f, n)
	}
	return &Follower{ring: r, filter: f, next: after}
}

// followPage is the number of records examined per step.
const followPage = 256

// Next waits for records until the timeout, and then returns none. gap is true if earlier records
// are missing: they are no longer kept, or the Seq to start from was in the future. The error is
// Canceled when ctx ends.
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
			return nil, false, errs.WrapAs(errs.Canceled, "telemetry.Next", ctx.Err())
		}
	}
}
