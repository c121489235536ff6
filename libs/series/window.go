package series

import (
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// The numbers of buckets of a window.
const (
	fewest  = 10
	usual   = 60
	most    = 360
	usually = "1h"
)

// windows maps names to lengths.
var windows = map[string]time.Duration{
	"15m": 15 * time.Minute, usually: time.Hour, "6h": 6 * time.Hour, "24h": 24 * time.Hour,
}

// Window is a part of the past, divided into buckets.
type Window struct {
	name    string
	length  time.Duration
	buckets int
}

// ParseWindow parses a window of 15m, 1h, 6h or 24h and a number of buckets. Empty strings mean 1h
// and 60. The number is limited to the range from 10 to 360. The error is Malformed.
func ParseWindow(window, buckets string) (w Window, err error) {
	if window == "" {
		window = usually
	}
	length, ok := windows[window]
	if !ok {
		return w, &errs.Error{Kind: errs.Malformed, Field: "window", Message: "must be 15m, 1h, 6h or 24h"}
	}
	n := usual
	if buckets != "" {
		if n, err = strconv.Atoi(buckets); err != nil {
			return w, &errs.Error{Kind: errs.Malformed, Field: "buckets", Message: "must be a number from 10 to 360"}
		}
	}
	return Window{window, length, min(max(n, fewest), most)}, nil
}

// Query returns the window as query parameters for ParseWindow.
func (w Window) Query() url.Values {
	return url.Values{"window": {w.name}, "buckets": {strconv.Itoa(w.buckets)}}
}

// Figures contains the history of some figures in buckets of equal width.
type Figures struct {
	WindowMillis int64 `json:"windowMs"`
	// BucketMillis is the width of a bucket.
	BucketMillis int64 `json:"bucketWidthMs"`
	Buckets      int   `json:"buckets"`
	// StartedAt is the start of the first bucket, in milliseconds since 1970.
	StartedAt int64 `json:"startedAtMs"`
	// Since is the time of the first sample that is still kept, nil while the ring is empty.
	Since *int64 `json:"sinceMs"`
	// Series are the mean values per bucket, oldest first, nil if unknown.
	Series map[string][]*float64 `json:"series"`
}

// Read returns a window that ends now.
func (r *Ring) Read(now time.Time, w Window) Figures {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := w.empty(now, r.names)
	if !r.since.IsZero() {
		out.Since = new(r.since.UnixMilli())
	}
	level := &r.levels[len(spans)-1]
	for n := len(spans) - 1; n >= 0 && spans[n].length >= w.length; n-- {
		level = &r.levels[n]
	}
	for n, name := range r.names {
		sums, counts := make([]float64, w.buckets), make([]int, w.buckets)
		for at, slot := range level.slots {
			if v := float64(level.values[at*len(r.names)+n]); !math.IsNaN(v) {
				first, last := w.within(out.StartedAt, int64(slot)*level.step*1000, level.step*1000)
				first = min(first, w.buckets-1) // a sample of this moment belongs to the last bucket
				for b := max(first, 0); b <= last && b < w.buckets; b++ {
					sums[b] += v
					counts[b]++
				}
			}
		}
		for b, c := range counts {
			if c > 0 {
				out.Series[name][b] = new(math.Round(sums[b]/float64(c)*decimals) / decimals)
			}
		}
	}
	return out
}

// decimals is the factor for rounding means.
const decimals = 10_000

// within returns the first and last bucket that a step touches, in milliseconds. A step counts for
// all of them, so that buckets narrower than a step have values too.
func (w Window) within(start, begin, length int64) (first, last int) {
	bucket := func(at int64) int {
		return int(math.Floor(float64(at-start) * float64(w.buckets) / float64(w.length.Milliseconds())))
	}
	return bucket(begin), bucket(begin + length - 1)
}

// Empty returns a window without data for figures of these names.
func Empty(now time.Time, w Window, names ...string) Figures { return w.empty(now, names) }

func (w Window) empty(now time.Time, names []string) Figures {
	out := Figures{
		WindowMillis: w.length.Milliseconds(), BucketMillis: w.length.Milliseconds() / int64(w.buckets), Buckets: w.buckets,
		StartedAt: now.Add(-w.length).UnixMilli(), Series: make(map[string][]*float64, len(names)),
	}
	for _, name := range names {
		out.Series[name] = make([]*float64, w.buckets)
	}
	return out
}
