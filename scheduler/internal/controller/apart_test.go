package controller

import (
	"testing"
	"time"
)

func TestSchedulersKeepApartWhereTheyMeetInCrowds(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		rule            string
		lost, of, nodes int
		apart           bool
	}{
		{"nothing lost", 0, 256, 5000, false},
		{"one of one", 1, 1, 5000, false},
		{"few of many", 9, 256, 5000, false},
		{"many of many", 64, 256, 5000, true},
		{"all of as few as are sent then", leastParts, leastParts, 5000, true},
		{"many of many, where there are few nodes", 64, 64, 100, false},
	} {
		w := &Controller{state: newState(0)}
		w.keepApart(c.lost, c.of, c.nodes, now)
		if apart := w.apartUntil.After(now); apart != c.apart {
			t.Errorf("%s: %v", c.rule, apart)
		}
	}
}
