package controller

import (
	"testing"
	"time"
)

func TestSchedulersKeepApartWhereTheyMeetInCrowds(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		rule     string
		lost, of int
		apart    bool
	}{
		{"nothing lost", 0, 256, false},
		{"one of one: there are few nodes", 1, 1, false},
		{"few of many", 9, 256, false},
		{"many of many", 64, 256, true},
		{"all of as few as are sent then", leastParts, leastParts, true},
	} {
		w := &Controller{state: newState()}
		w.keepApart(c.lost, c.of, now)
		if apart := w.apartUntil.After(now); apart != c.apart {
			t.Errorf("%s: %v", c.rule, apart)
		}
	}
}
