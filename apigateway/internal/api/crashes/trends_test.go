package crashes

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet/reports"
)

func TestTheBucketsOfTrendsSumUpToTheTotals(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.Int64Range(1, int64(maxWindow/time.Second)).Draw(t, "window")) * time.Second
		n := min(rapid.IntRange(1, maxBuckets).Draw(t, "buckets"), int(window/time.Second))
		var all []*reports.Crash
		within := 0
		for range rapid.IntRange(0, 50).Draw(t, "crashes") {
			ago := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(2*window)).Draw(t, "ago"))
			all = append(all, &reports.Crash{At: now.Add(-ago), Category: rapid.SampledFrom(reports.CrashCategories[:]).Draw(t, "category")})
			if ago <= window {
				within++
			}
		}
		got := trendsOf(all, now, window, n)
		count, by := 0, crashCounts{}
		for b, bucket := range got.Buckets {
			sum := 0
			for category, k := range bucket.By {
				by[category] += k
				sum += k
			}
			if sum != bucket.Count || b > 0 && !bucket.TS.After(got.Buckets[b-1].TS) || bucket.TS.After(now) {
				t.Fatalf("bucket %d: %+v", b, bucket)
			}
			count += bucket.Count
		}
		for category, k := range got.By {
			if by[category] != k {
				t.Fatalf("%s: %d, in buckets %d", category, k, by[category])
			}
		}
		if count != got.Total || got.Total != within || len(got.Buckets) != n {
			t.Fatalf("%d in %d buckets, total %d, want %d", count, len(got.Buckets), got.Total, within)
		}
	})
}

func TestWindows(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 24 * time.Hour, "1h": time.Hour, "7d": 7 * 24 * time.Hour, "3600": time.Hour, "90d": maxWindow, "99999999999": maxWindow,
		"0": 0, "-1h": 0, "x": 0, "d": 0, "1ms": 0,
	} {
		if got, ok := windowOf(text); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}

// FuzzWindow checks that a window is either rejected or within the limits.
func FuzzWindow(f *testing.F) {
	for _, seed := range []string{"", "24h", "7d", "60", "-1", "0", "1ms", "999999d", "9223372036854775807", "-9223372036854775808", "1e9h", "d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if window, ok := windowOf(text); ok && (window < time.Second || window > maxWindow) {
			t.Errorf("%q is %v", text, window)
		}
	})
}
