package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/wire"
)

func always(limit int) func() int { return func() int { return limit } }

func TestALimitThatChangesHoldsFromThenOn(t *testing.T) {
	limit := 1
	l := newLimiter[string](func() int { return limit }, func() time.Time { return time.Unix(0, 0) }, one)
	var got []bool
	for _, limit = range []int{1, 1, 3, 0, 2} {
		got = append(got, !l.allow("10.0.0.1").over)
	}
	if want := []bool{true, false, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestALimitCountsPerCallerAndWindow(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimiter[string](always(3), func() time.Time { return now }, one)
	for n := range 3 {
		if l.allow("10.0.0.1").over {
			t.Fatalf("request %d was refused", n+1)
		}
	}
	now = now.Add(20 * time.Second)
	if got := l.allow("10.0.0.1"); !got.over || got.wait != 40*time.Second {
		t.Errorf("the fourth: %+v", got)
	}
	if l.allow("10.0.0.2").over {
		t.Error("another caller was refused")
	}
	now = now.Add(40 * time.Second)
	if l.allow("10.0.0.1").over {
		t.Error("a new window counts the old one's requests")
	}
}

func one() int { return 1 }

func TestReplicasTogetherAllowTheLimitAndLessThanOneMoreEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, replicas := rapid.IntRange(1, 50).Draw(t, "limit"), rapid.IntRange(1, 9).Draw(t, "replicas")
		allowed := 0
		for range replicas {
			l := newLimiter[string](always(limit), func() time.Time { return time.Unix(0, 0) }, func() int { return replicas })
			for range limit + 1 {
				if !l.allow("ann").over {
					allowed++
				}
			}
		}
		if allowed < limit || allowed >= limit+replicas {
			t.Fatalf("%d replicas allow %d of %d", replicas, allowed, limit)
		}
	})
}

func TestNoLimitAllowsEverything(t *testing.T) {
	l := newLimiter[string](always(0), time.Now, one)
	for range 1000 {
		if l.allow("10.0.0.1").over {
			t.Fatal("refused")
		}
	}
}

func TestAHostCountsAsOneWhateverItsAddresses(t *testing.T) {
	same := [][2]string{
		{"2001:db8::1", "2001:db8::ffff:1:2:3"}, {"::ffff:10.0.0.1", "10.0.0.1"}, {"fe80::1%eth0", "fe80::2%eth1"}, {"nonsense", ""},
	}
	for _, pair := range same {
		if caller(pair[0]) != caller(pair[1]) {
			t.Errorf("%v count apart", pair)
		}
	}
	if caller("10.0.0.1") == caller("10.0.0.2") || caller("2001:db8::1") == caller("2001:db8:0:1::1") {
		t.Error("strangers count as one")
	}
}

func TestRememberedCallersAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimiter[string](always(1), func() time.Time { return now }, one)
	for n := range maxCallers + 100 {
		l.allow(fmt.Sprintf("%d.%d.%d.1", 1+n>>16, n>>8&0xff, n&0xff))
	}
	if len(l.callers) > maxCallers+1 {
		t.Errorf("%d callers are remembered", len(l.callers))
	}
	now = now.Add(limitWindow)
	l.allow("200.0.0.1")
	if len(l.callers) > 2 {
		t.Errorf("%d old callers were kept", len(l.callers))
	}
}

func TestDialectOf(t *testing.T) {
	for path, want := range map[string]wire.Dialect{
		"/": wire.V1, "/livez": wire.V1, "/api/v1": wire.V1, "/api/v1/groups": wire.V1, "/api/plugin/ready": wire.V1, "/api/proxy/x": wire.V1,
		"/api/v1x": wire.Universe, "/api/instances": wire.Universe, "/api/": wire.Universe, "/api": wire.V1, "/apix": wire.V1,
	} {
		if got := DialectOf(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a b\r\nSet-Cookie: x")
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s)
		if len(got) > maxCorrelationID || clean(got) != got {
			t.Errorf("%q became %q", s, got)
		}
		for _, r := range got {
			if r <= ' ' || r > '~' {
				t.Errorf("%q became %q", s, got)
			}
		}
	})
}
