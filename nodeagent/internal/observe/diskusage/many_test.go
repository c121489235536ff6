package diskusage

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// watched counts the walks of each of n directories within a time, each of which takes as long as
// takes returns, and the total time of the walks.
func watched(t *testing.T, n int, within time.Duration, takes func(dir string) time.Duration) (looks map[string]int, walked time.Duration) {
	t.Helper()
	looks = map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		m.walk = func(ctx context.Context, dirs []string) (int64, error) {
			looks[dirs[0]]++ // no lock: only one walk runs at a time
			walked += takes(dirs[0])
			<-time.After(takes(dirs[0]))
			return 2, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var watching sync.WaitGroup
		for i := range n {
			watching.Go(func() { m.Watch(ctx, []string{strconv.Itoa(i)}, func(int64) {}) })
		}
		watching.Wait()
	})
	return looks, walked
}

func TestWaitDoesNotCountAsWalkTime(t *testing.T) {
	const n, within = 200, 10 * time.Minute
	looks, walked := watched(t, n, within, func(string) time.Duration { return 20 * time.Millisecond })
	for i := range n {
		// All are measured within 16 s, a quarter of which are walks.
		if got := looks[strconv.Itoa(i)]; got < 30 {
			t.Errorf("directory %d was looked at %d times", i, got)
		}
	}
	if walked > within/sharedPauseFactor {
		t.Errorf("%v of %v were spent walking", walked, within)
	}
}

func TestLargeDirectoryIsMeasuredLessOften(t *testing.T) {
	looks, _ := watched(t, 2, time.Hour, func(dir string) time.Duration {
		if dir == "0" {
			return 2 * time.Second
		}
		return time.Millisecond
	})
	if large, small := looks["0"], looks["1"]; large < 10 || small < 10*large {
		t.Errorf("%d looks at the large one, %d at the small one", large, small)
	}
}

func TestWatchAllUsesAFiftiethOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, within, takes = 500, time.Hour, 100 * time.Millisecond
		m, walked, looks := NewMeter(), time.Duration(0), map[string]int{}
		m.walk = func(context.Context, []string) (int64, error) {
			walked += takes
			<-time.After(takes)
			return 1, nil
		}
		all := map[string][]string{}
		for i := range n {
			all[strconv.Itoa(i)] = []string{"dir"}
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		m.WatchAll(ctx, func() map[string][]string { return all }, func(name string, _ int64) { looks[name]++ })
		if walked > within/50+takes {
			t.Errorf("somebody walked for %v of %v", walked, within)
		}
		if len(looks) != n {
			t.Errorf("%d of %d directories were looked at", len(looks), n)
		}
	})
}

func TestHugeDirectoryDelaysOthersByMinutesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, looks := NewMeter(), map[string]int{}
		m.walk = func(_ context.Context, dirs []string) (int64, error) {
			if dirs[0] == "huge" {
				<-time.After(2 * time.Minute)
			}
			return 1, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		all := map[string][]string{"huge": {"huge"}, "small": {"small"}}
		m.WatchAll(ctx, func() map[string][]string { return all }, func(name string, _ int64) { looks[name]++ })
		if looks["small"] < 6 || looks["huge"] < 6 {
			t.Errorf("within an hour they were measured %v times", looks)
		}
	})
}
