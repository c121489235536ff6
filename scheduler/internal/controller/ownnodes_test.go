package controller

import (
	"testing"
	"time"
)

func TestHeavyLossKeepsASchedulerToItsOwnNodes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		rule            string
		lost, of, nodes int
		want            bool
	}{
		{"nothing lost", 0, 256, 5000, false},
		{"one of one", 1, 1, 5000, false},
		{"few of many", 9, 256, 5000, false},
		{"many of many", 64, 256, 5000, true},
		{"all of the smallest transaction", leastParts, leastParts, 5000, true},
		{"many of many in a small fleet", 64, 64, 100, false},
	} {
		w := &Controller{state: newState(0)}
		w.keepToOwn(c.lost, c.of, c.nodes, now)
		if got := w.onlyOwnUntil.After(now); got != c.want {
			t.Errorf("%s: keeps to its own nodes %v, want %v", c.rule, got, c.want)
		}
	}
}
