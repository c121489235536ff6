package timetable

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/cron"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
)

func evening() *schedule.Overlay {
	o := &schedule.Overlay{Name: "evening", Cron: "0 18 * * *", DurationSeconds: 4 * 3600, Enabled: true}
	o.ModRev = 7
	return o
}

func times(t interface{ Fatal(...any) }) func(*schedule.Overlay) Times {
	return func(o *schedule.Overlay) Times {
		if o.Cron == "" {
			return cron.Schedule{}
		}
		s, err := cron.Parse(o.Cron, o.Timezone)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func on(a schedule.Active) bool { return len(a.Overlays) > 0 && a.Overlays[0].On }

func TestAnOverlayIsActiveInItsWindow(t *testing.T) {
	day := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	once := &schedule.Overlay{Name: "once", From: day.Add(18 * time.Hour), Until: day.Add(22 * time.Hour), Enabled: true}
	off := evening()
	off.Enabled = false
	for _, c := range []struct {
		o    *schedule.Overlay
		at   time.Duration
		on   bool
		wake time.Duration // 0 for none
	}{
		{evening(), 17 * time.Hour, false, 18 * time.Hour},
		{evening(), 18 * time.Hour, true, 22 * time.Hour},
		{evening(), 21 * time.Hour, true, 22 * time.Hour},
		{evening(), 22 * time.Hour, false, 42 * time.Hour},
		{once, 17 * time.Hour, false, 18 * time.Hour},
		{once, 18 * time.Hour, true, 22 * time.Hour},
		{once, 22 * time.Hour, false, 0},
		{off, 19 * time.Hour, false, 0},
	} {
		got, wake := Overlays([]*schedule.Overlay{c.o}, schedule.Active{}, times(t), day.Add(c.at))
		want := time.Time{}
		if c.wake != 0 {
			want = day.Add(c.wake)
		}
		if on(got) != c.on || !wake.Equal(want) {
			t.Errorf("%s at %v: on %v, wakes at %v, want %v", c.o.Name, c.at, on(got), wake, want)
		}
	}
}

func TestAChangedOverlayIsDecidedAgain(t *testing.T) {
	now := time.Date(2030, 1, 1, 19, 0, 0, 0, time.UTC)
	before, _ := Overlays([]*schedule.Overlay{evening()}, schedule.Active{}, times(t), now)
	later := evening()
	later.ModRev, later.Cron = 8, "0 20 * * *"
	if after, _ := Overlays([]*schedule.Overlay{later}, before, times(t), now); on(after) {
		t.Error("still active")
	}
	if after, _ := Overlays(nil, before, times(t), now); len(after.Overlays) != 0 {
		t.Error("a deleted overlay stays")
	}
}

// TestEachWindowBeginsAndEndsOnce lets gateways with different clocks decide in any order.
func TestEachWindowBeginsAndEndsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := evening()
		var record schedule.Active
		now := time.Date(2030, 1, 1, 17, 0, 0, 0, time.UTC)
		begun, ended := map[time.Time]int{}, map[time.Time]int{}
		for range rapid.IntRange(1, 80).Draw(t, "decisions") {
			ahead := time.Duration(rapid.IntRange(-1800, 1800).Draw(t, "ahead")) * time.Second
			next, _ := Overlays([]*schedule.Overlay{o}, record, times(t), now.Add(ahead))
			switch was, is := on(record), on(next); {
			case is && (!was || !next.Overlays[0].Begun.Equal(record.Overlays[0].Begun)):
				begun[next.Overlays[0].Begun]++
			case was && !is:
				ended[record.Overlays[0].Begun]++
			}
			record = next
			now = now.Add(time.Duration(rapid.IntRange(0, 3600).Draw(t, "seconds")) * time.Second)
		}
		for at, n := range begun {
			if n > 1 || ended[at] > 1 {
				t.Fatalf("the window of %v began %d times and ended %d times", at, n, ended[at])
			}
		}
	})
}
