package facts

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Failures returns the times at which an instance failed since it was last seen. With
// listed false, a failure counts as happening now, so that host clocks do not matter. With
// listed true, the record may be old, and its own time counts unless it is in the future.
func Failures(before, after *fleet.Instance, now time.Time, listed bool) (all []time.Time) {
	fail := func(at time.Time) {
		if !listed || at.After(now) {
			at = now
		}
		all = append(all, at)
	}
	n, at := restarts(before, after, now)
	for range n {
		fail(at)
	}
	if at, ok := failedAt(after); ok {
		if _, known := failedAt(before); !known || before.Status.Generation != after.Status.Generation {
			fail(at)
		}
	}
	return all
}

// restarts returns how often the agent restarted an instance in place since it was last
// seen, and when. For an instance not seen before, the record has only the number, so the
// restarts count if the placement is recent. Restarts by a host reboot do not count,
// because the exit is unknown.
func restarts(before, after *fleet.Instance, now time.Time) (n int, at time.Time) {
	if after == nil || after.Status == nil || after.Status.Restarts == 0 || after.Placement == nil {
		return 0, time.Time{}
	}
	s := after.Status
	if s.Exit != nil && !s.Exit.Known {
		return 0, time.Time{}
	}
	if before != nil && before.Status != nil && before.Status.Generation == s.Generation {
		return min(max(0, s.Restarts-before.Status.Restarts), fleet.CrashHistory), s.ChangedAt
	}
	if placed := after.Placement.PlacedAt; now.Sub(placed) < place.FailureWindow {
		return min(s.Restarts, fleet.CrashHistory), placed
	}
	return 0, time.Time{}
}

// failedAt returns when an instance crashed or could not start. ok is false when it did
// not, or when its node and plan are not responsible.
func failedAt(i *fleet.Instance) (at time.Time, ok bool) {
	if i == nil || i.Status == nil || i.Status.State != fleet.Crashed && i.Status.State != fleet.Failed {
		return time.Time{}, false
	}
	return i.FailedAt()
}
