package store

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/store/keys"
)

// pauses returns the retry pauses of n clients that follow one prefix.
func pauses(n int, listed bool, fails int) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		c := New((*clientv3.Client)(nil), Options{Seed: uint64(i + 1)})
		f := follower{client: c, random: c.random(keys.Root), listed: listed, fails: fails}
		out[i] = f.delay()
	}
	return out
}

func TestRelistsAreSpread(t *testing.T) {
	t.Parallel()
	const clients, parts = 1000, 10
	var crowd [parts]int
	for _, d := range pauses(clients, true, 0) {
		if d <= 0 || d > relistSpread {
			t.Fatalf("a pause of %v", d)
		}
		crowd[min(int(d*parts/relistSpread), parts-1)]++
	}
	for i, n := range crowd {
		if n > 2*clients/parts {
			t.Errorf("%d of %d list in the %d. tenth of the time", n, clients, i+1)
		}
	}
}

func TestFirstListIsNotDelayed(t *testing.T) {
	t.Parallel()
	for _, d := range pauses(100, false, 0) {
		if d > firstPause {
			t.Fatalf("a pause of %v", d)
		}
	}
}

func TestPausesGrowWithFailuresUpToABound(t *testing.T) {
	t.Parallel()
	for fails := range 40 {
		for _, d := range pauses(50, true, fails) {
			if d <= 0 || d > lastPause {
				t.Fatalf("a pause of %v after %d failures", d, fails)
			}
		}
	}
}

func TestEqualSeedsPauseAlike(t *testing.T) {
	t.Parallel()
	a, b := pauses(20, true, 0), pauses(20, true, 0)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("client %d paused %v and %v", i, a[i], b[i])
		}
	}
}
