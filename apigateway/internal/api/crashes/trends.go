package crashes

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

const (
	trendWindow  = 24 * time.Hour
	maxWindow    = 30 * 24 * time.Hour
	trendBuckets = 24
	maxBuckets   = 288
)

// trends counts crashes in a window that ends now. The buckets add up to the totals.
type trends struct {
	WindowStart   time.Time       `json:"windowStart"`
	WindowEnd     time.Time       `json:"windowEnd"`
	WindowSeconds int64           `json:"windowSeconds"`
	BucketSeconds int64           `json:"bucketSeconds"`
	Total         int             `json:"total"`
	By            crashCounts     `json:"totalsByClassification"`
	Buckets       []crashesWithin `json:"buckets"`
}

// crashesWithin counts the crashes from TS to the next bucket.
type crashesWithin struct {
	TS    time.Time   `json:"ts"`
	Count int         `json:"count"`
	By    crashCounts `json:"byClassification"`
}

type crashCounts map[reports.CrashCategory]int

// trendsOf counts the crashes in a window that ends now, in n buckets. A crash dated after now, by
// the clock of its host, counts in the last bucket.
func trendsOf(all []*reports.Crash, now time.Time, window time.Duration, n int) trends {
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

// crashTrends answers for ?window (24h) in ?buckets (24). It accepts the filters of the list.
func (a *API) crashTrends(c *gin.Context) {
	f, ok := a.crashFilterOf(c)
	if !ok {
		return
	}
	window, ok := windowOf(c.Query("window"))
	if !ok {
		server.Fail(c, resource.InvalidQuery("window", "must be a duration such as 24h or 7d, at most 30d"))
		return
	}
	n, ok := server.Number(c, "buckets", trendBuckets)
	if !ok {
		return
	}
	n = min(max(n, 1), maxBuckets, int(window/time.Second))
	c.JSON(http.StatusOK, trendsOf(crashesOf(a.operations.Snapshot(), f), a.operations.Now(), window, n))
}

// windowOf reads a duration or a number of seconds. It shortens longer windows to maxWindow. It
// returns false for anything under a second.
func windowOf(text string) (window time.Duration, ok bool) {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(seconds, int(maxWindow/time.Second))) * time.Second, seconds > 0
	}
	d, ok := span(cmp.Or(text, trendWindow.String()))
	return min(d, maxWindow), ok && d >= time.Second
}
