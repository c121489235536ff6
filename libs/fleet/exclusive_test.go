package fleet

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestOnlyStaticGroupsThatMoveAreExclusive(t *testing.T) {
	for _, c := range []struct {
		static   bool
		declared OnNodeLoss
		want     bool
	}{
		{true, NodeLossReplace, true},
		{true, NodeLossWait, false},
		{true, NodeLossStop, false},
		{true, "", false},
		{false, NodeLossReplace, false},
		{false, "", false},
	} {
		g := Group{Spec: GroupSpec{Static: Static{Enabled: c.static}, OnNodeLoss: c.declared}}
		if got := Compose(g, Materials{}, 0).Exclusive(); got != c.want {
			t.Errorf("static %v, onNodeLoss %q: exclusive %v, want %v", c.static, c.declared, got, c.want)
		}
	}
}

func TestExclusiveMarginLeavesTimeToRunAndToKill(t *testing.T) {
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
