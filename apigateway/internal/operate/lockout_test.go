package operate

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

// A name is locked out by the failure that makes as many as the policy says within its
// window, and by no other, and then for as long as it says.
func TestANameIsLockedOutByTooManyFailuresWithinTheWindowAndNoOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := LockoutPolicy{
			Failures: rapid.IntRange(1, 6).Draw(t, "failures"),
			Window:   time.Duration(rapid.IntRange(1, 50).Draw(t, "window")) * time.Second,
			Duration: time.Duration(rapid.IntRange(1, 50).Draw(t, "duration")) * time.Second,
		}
		var (
			l        fleet.Lockout
			counting []time.Time // since the last lock
			until    time.Time
			now      = time.Unix(1_000_000, 0)
		)
		for range rapid.IntRange(1, 40).Draw(t, "attempts") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "pause")) * time.Second)
			next, counted := p.after(l, now)
			if counted != !now.Before(until) {
				t.Fatalf("at %v, locked until %v: counted is %v", now, until, counted)
			}
			if !counted {
				continue
			}
			counting = append(counting, now)
			within := 0
			for _, at := range counting {
				if now.Sub(at) < p.Window {
					within++
				}
			}
			locks := within >= p.Failures
			if locks != next.Until.Equal(now.Add(p.Duration)) || len(next.Failures) >= p.Failures {
				t.Fatalf("%d failures within the window of %+v: %+v", within, p, next)
			}
			if l = next; locks {
				counting, until = nil, next.Until
			}
		}
	})
}
