package clock_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/clock"
)

func TestTheEnvironmentSetsTheClock(t *testing.T) {
	for _, tt := range []struct {
		env  string
		want time.Duration
	}{{"PATH=/bin", 0}, {"ORRERY_CLOCK_AHEAD=", 0}, {"ORRERY_CLOCK_AHEAD=12h", 12 * time.Hour}, {"ORRERY_CLOCK_AHEAD=-140s", -140 * time.Second}} {
		now, err := clock.FromEnv([]string{tt.env})
		if err != nil {
			t.Errorf("%s: %v", tt.env, err)
			continue
		}
		before := time.Now()
		at := now()
		after := time.Now()
		if at.Before(before.Add(tt.want)) || at.After(after.Add(tt.want)) {
			t.Errorf("%s: the clock is at %v, want %v ahead of %v", tt.env, at, tt.want, before)
		}
	}
	if _, err := clock.FromEnv([]string{"ORRERY_CLOCK_AHEAD=soon"}); err == nil {
		t.Error("a clock that is soon ahead is accepted")
	}
}
