package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestExclusiveMarginLeavesTimeToRunAndKill(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second: 500 * time.Millisecond, 2 * time.Second: time.Second, 3 * time.Second: time.Second,
		10 * time.Second: 10 * time.Second / 3, time.Minute: 20 * time.Second,
	} {
		if got := ExclusiveMargin(ttl); got != want {
			t.Errorf("a TTL of %v: %v, want %v", ttl, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "ttl"))
		if m := ExclusiveMargin(ttl); m <= 0 || ttl-m <= ttl/3 {
			t.Errorf("a TTL of %v: %v leaves no keep-alive before the stop", ttl, m)
		}
	})
}
