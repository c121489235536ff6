package timetable

import (
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/schedule"
)

// Window is a time during which an overlay is active.
type Window struct{ From, Until time.Time }

// WindowAt returns the window of an overlay at a time. ok is false between windows.
func WindowAt(o *schedule.Overlay, times Times, now time.Time) (w Window, ok bool) {
	if o.Cron == "" {
		return Window{o.From, o.Until}, !now.Before(o.From) && now.Before(o.Until)
	}
	length := time.Duration(o.DurationSeconds) * time.Second
	from, ok := times.Latest(now.Add(-length), now)
	return Window{from, from.Add(length)}, ok
}

// NextWindow returns the first window that begins after a time.
func NextWindow(o *schedule.Overlay, times Times, now time.Time) (w Window, ok bool) {
	if o.Cron == "" {
		return Window{o.From, o.Until}, now.Before(o.From)
	}
	from, ok := times.Next(now)
	return Window{from, from.Add(time.Duration(o.DurationSeconds) * time.Second)}, ok
}

// Overlays returns which overlays are active, and when to decide again; zero if only a change requires
// it. overlays are sorted by name. times returns the due times of an overlay with a cron expression.
//
// A window that this or another gateway ended does not begin again, and one that is active ends only when
// the deciding gateway's clock has reached its end.
func Overlays(overlays []*schedule.Overlay, before schedule.Active, times func(*schedule.Overlay) Times, now time.Time) (after schedule.Active, wake time.Time) {
	after.Rev = before.Rev
	wakeAt := func(t time.Time) {
		if wake.IsZero() || t.Before(wake) {
			wake = t
		}
	}
	for _, o := range overlays {
		if !o.Enabled {
			continue
		}
		was := schedule.ActiveOverlay{Name: o.Name, Revision: o.ModRev}
		if n := slices.IndexFunc(before.Overlays, func(a schedule.ActiveOverlay) bool { return a.Name == o.Name }); n >= 0 && before.Overlays[n].Revision == o.ModRev {
			was = before.Overlays[n]
		}
		is := was
		window, open := WindowAt(o, times(o), now)
		switch {
		case open && window.From.After(was.Begun):
			is = active(o, window)
		case was.On && !now.Before(was.Until):
			is = schedule.ActiveOverlay{Name: o.Name, Revision: o.ModRev, Begun: was.Begun, Until: was.Until}
		}
		if is.On {
			wakeAt(is.Until)
		}
		if next, ok := NextWindow(o, times(o), now); ok {
			wakeAt(next.From)
		}
		if !is.Begun.IsZero() {
			after.Overlays = append(after.Overlays, is)
		}
	}
	return after, wake
}

func active(o *schedule.Overlay, w Window) schedule.ActiveOverlay {
	return schedule.ActiveOverlay{
		Name: o.Name, Revision: o.ModRev, On: true, Begun: w.From, Until: w.Until, Groups: o.Groups, Selector: o.Selector, Changes: o.Changes,
	}
}

// SameActive reports whether two records of active overlays are equal.
func SameActive(a, b schedule.Active) bool {
	return slices.EqualFunc(a.Overlays, b.Overlays, func(x, y schedule.ActiveOverlay) bool {
		return x.Name == y.Name && x.Revision == y.Revision && x.On == y.On && x.Begun.Equal(y.Begun) && x.Until.Equal(y.Until)
	})
}
