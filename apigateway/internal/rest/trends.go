package rest

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
)

// The bounds of a question about trends.
const (
	trendWindow  = 24 * time.Hour
	maxWindow    = 30 * 24 * time.Hour
	trendBuckets = 24
	maxBuckets   = 288
)

// trends counts crashes over a window that ends now: the buckets' sums are the totals.
type trends struct {
	WindowStart   time.Time       `json:"windowStart"`
	WindowEnd     time.Time       `json:"windowEnd"`
	WindowSeconds int64           `json:"windowSeconds"`
	BucketSeconds int64           `json:"bucketSeconds"`
	Total         int             `json:"total"`
	By            crashCounts     `json:"totalsByClassification"`
	Buckets       []crashesWithin `json:"buckets"`
}

// crashesWithin counts from TS on, to the next bucket's.
type crashesWithin struct {
	TS    time.Time   `json:"ts"`
	Count int         `json:"count"`
	By    crashCounts `json:"byClassification"`
}

type crashCounts map[fleet.CrashCategory]int

// trendsOf counts the crashes after the start of a window that ends now, in n buckets.
// What a host's clock dates after now happened now.
func trendsOf(all []*fleet.Crash, now time.Time, window time.Duration, n int) trends {
	start, width := now.Add(-window), window/time.Duration(n)
	out := trends{
		WindowStart: start, WindowEnd: now, WindowSeconds: int64(window / time.Second), BucketSeconds: int64(width / time.Second),
		By: crashCounts{}, Buckets: make([]crashesWithin, n),
	}
	for b := range out.Buckets {
		out.Buckets[b] = crashesWithin{TS: start.Add(time.Duration(b) * width), By: crashCounts{}}
	}
	for _, c := range all {
		if c.At.Before(start) {
			continue
		}
		b := &out.Buckets[min(int(c.At.Sub(start)/width), n-1)]
		out.Total, b.Count = out.Total+1, b.Count+1
		out.By[c.Category]++
		b.By[c.Category]++
	}
	return out
}

// crashTrends answers for ?window (24h) in ?buckets (24), chosen like the list.
func (a *API) crashTrends(c *gin.Context) {
	f, ok := a.crashFilterOf(c)
	if !ok {
		return
	}
	window, ok := windowOf(c.Query("window"))
	if !ok {
		server.Fail(c, badQuery("window", "must be a length of time as 24h or 7d, 30d at most"))
		return
	}
	n, ok := server.Number(c, "buckets", trendBuckets)
	if !ok {
		return
	}
	n = min(max(n, 1), maxBuckets, int(window/time.Second))
	c.JSON(http.StatusOK, trendsOf(crashesOf(a.snapshot(), f), a.cfg.Now().UTC(), window, n))
}

// windowOf reads a window, also in plain seconds; ok is false for what is none. One that
// is too long is the longest.
func windowOf(text string) (window time.Duration, ok bool) {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(seconds, int(maxWindow/time.Second))) * time.Second, seconds > 0
	}
	d, ok := span(cmp.Or(text, trendWindow.String()))
	return min(d, maxWindow), ok && d >= time.Second
}
