package account_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet/account"
)

// For any requests, a login has one newest refresh token. Its predecessor may be used again for a
// minute; later it ends the login. Older tokens end the login at once.
func TestRefreshTokenRotatesRepeatsThenEndsLogin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		l := account.Login{Serial: 1, SignedInAt: now}
		made := map[int64]time.Time{1: now} // when each serial became the newest
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 45).Draw(t, "pause")) * time.Second)
			serial := rapid.Int64Range(0, l.Serial+1).Draw(t, "serial")
			want := account.RefreshReused
			switch {
			case serial < 1 || serial > l.Serial:
				want = account.RefreshUnknown
			case serial == l.Serial:
				want = account.RefreshRotates
			case serial == l.Serial-1 && now.Sub(made[l.Serial]) < time.Minute:
				want = account.RefreshRepeats
			}
			if got := l.Refresh(serial, now); got != want {
				t.Fatalf("serial %d of %+v at %v: %v, want %v", serial, l, now, got, want)
			}
			if want == account.RefreshRotates {
				l = l.Rotated(now)
				made[l.Serial] = now
			}
		}
		if !l.Ends().Equal(l.SignedInAt.Add(30 * 24 * time.Hour)) {
			t.Fatalf("refreshing moved the end to %v", l.Ends())
		}
	})
}

func TestKnownNetworksEvictsLeastRecentlyUsed(t *testing.T) {
	k := account.KnownNetworks{Networks: map[string]time.Time{}}
	now := time.Unix(1_000_000, 0)
	for n := range 2 * account.MaxKnownNetworks {
		now = now.Add(time.Hour)
		k.Use(fmt.Sprint(n), now)
		k.Use("home", now)
	}
	_, home := k.Networks["home"]
	_, last := k.Networks[fmt.Sprint(2*account.MaxKnownNetworks-1)]
	if len(k.Networks) != account.MaxKnownNetworks || !home || !last {
		t.Errorf("%d networks, home %v, last %v", len(k.Networks), home, last)
	}
	k.Use("away", now.Add(account.KnownNetworkLife))
	if len(k.Networks) != 1 {
		t.Errorf("%d networks are known after they were not used for long", len(k.Networks))
	}
}

func TestNetworkOf(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.7": "203.0.113.7", "::ffff:203.0.113.7": "203.0.113.7", "2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64", "": "", "nonsense": "nonsense",
	} {
		if got := account.NetworkOf(address); got != want {
			t.Errorf("%q is of %q, want %q", address, got, want)
		}
	}
}
