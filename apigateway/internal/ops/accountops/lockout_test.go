package accountops

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet/account"
)

// A network is locked by the failure that reaches the limit for that network within the window. Unknown
// networks are also locked by the failure that reaches the limit for all unknown networks together.
// Failures from other networks never lock a known network.
func TestANameIsLockedOutForANetworkByItsOwnFailuresAndForUnknownOnesByAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := LockoutPolicy{
			Failures: rapid.IntRange(1, 6).Draw(t, "failures"),
			Window:   time.Duration(rapid.IntRange(1, 50).Draw(t, "window")) * time.Second,
			Duration: time.Duration(rapid.IntRange(1, 50).Draw(t, "duration")) * time.Second,
		}
		type counter struct {
			counting []time.Time // since the last lock
			until    time.Time
		}
		var (
			l       account.Lockout
			own     = map[string]*counter{}
			unknown counter
			now     = time.Unix(1_000_000, 0)
			within  = func(c *counter) (n int) {
				for _, at := range c.counting {
					if now.Sub(at) < p.Window {
						n++
					}
				}
				return n
			}
			fails = func(c *counter, most int) {
				if c.counting = append(c.counting, now); within(c) >= most {
					c.counting, c.until = nil, now.Add(p.Duration)
				}
			}
		)
		for range rapid.IntRange(1, 80).Draw(t, "attempts") {
			now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "pause")) * time.Second)
			n := rapid.IntRange(0, 8).Draw(t, "network")
			from := origin{network: fmt.Sprint(n), known: n < 3}
			if own[from.network] == nil {
				own[from.network] = new(counter)
			}
			mine := own[from.network]
			open := !now.Before(mine.until) && (from.known || !now.Before(unknown.until))
			wrong := within(mine)
			if !from.known {
				wrong = max(wrong, within(&unknown))
			}
			if d := p.delay(&l, from, now); open && (d > maxDelay || (d == 0) != (wrong == 0)) {
				t.Fatalf("a password waits %v after %d wrong ones", d, wrong)
			}
			next, counted := p.after(l, from, now)
			if counted != open {
				t.Fatalf("at %v from %+v: counted is %v, %+v", now, from, counted, l)
			}
			if !counted {
				continue
			}
			l = next
			if fails(mine, p.Failures); !from.known {
				fails(&unknown, p.Failures*strangers)
			}
			locked := now.Before(mine.until) || !from.known && now.Before(unknown.until)
			if now.Before(lockedUntil(&l, from)) != locked {
				t.Fatalf("%d failures from %+v within the window of %+v, of unknown networks %d: %+v", within(mine), from, p, within(&unknown), l)
			}
		}
	})
}

func TestTheNetworksCountedForANameAreBounded(t *testing.T) {
	p := LockoutPolicy{Failures: 5, Window: time.Minute, Duration: 24 * time.Hour}
	var l account.Lockout
	now := time.Unix(1_000_000, 0)
	for n := range 10 * account.MaxLockoutNetworks {
		now = now.Add(10 * time.Second) // too few per window to lock all unknown networks
		from := origin{network: fmt.Sprint(n)}
		for range 2 {
			l, _ = p.after(l, from, now)
		}
		if _, counted := l.Networks[from.network]; !counted || len(l.Networks) > account.MaxLockoutNetworks {
			t.Fatalf("after %d networks %d are counted; the last one: %v", n+1, len(l.Networks), counted)
		}
	}
}

func TestARightPasswordForgetsOnlyTheFailuresOfItsNetwork(t *testing.T) {
	p := LockoutPolicy{Failures: 5, Window: time.Minute, Duration: time.Minute}
	var l account.Lockout
	now := time.Unix(1_000_000, 0)
	for n, network := range []string{"a", "b", "a"} {
		l, _ = p.after(l, origin{network: network}, now.Add(time.Duration(n)*time.Second))
	}
	now = now.Add(3 * time.Second)
	next, left := p.forgiven(l, "a", now)
	if !left || len(next.Failures) != 1 || len(next.Networks) != 1 || !slices.Equal(next.Networks["b"].Failures, next.Failures) {
		t.Errorf("%+v became %+v", l, next)
	}
	if next, left := p.forgiven(next, "b", now); left {
		t.Errorf("%+v is left of nothing", next)
	}
}

func TestDelaysGrowToTwoSeconds(t *testing.T) {
	p := LockoutPolicy{Failures: 100, Window: time.Hour, Duration: time.Hour}
	var l account.Lockout
	var delays []time.Duration
	now, from := time.Unix(1_000_000, 0), origin{network: "a", known: true}
	for range 8 {
		delays = append(delays, p.delay(&l, from, now))
		l, _ = p.after(l, from, now)
	}
	const ms = time.Millisecond
	if want := []time.Duration{0, 125 * ms, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 2000 * ms, 2000 * ms}; !slices.Equal(delays, want) {
		t.Errorf("%v, want %v", delays, want)
	}
}
