package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

func TestPauseEndsWithContext(t *testing.T) {
	cases := []struct {
		name     string
		d        time.Duration
		ends     time.Duration // end of the context, after the pause began
		want     bool
		wantTook time.Duration
	}{
		{"the pause is over first", time.Second, time.Minute, true, time.Second},
		{"the context ends first", time.Minute, time.Second, false, time.Second},
		{"the context has ended before", time.Second, 0, false, 0},
		{"no pause, in a context that has ended", 0, 0, false, 0},
		{"no pause", 0, time.Second, true, 0},
		{"the moment is past", -time.Second, time.Second, true, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				began := time.Now()
				if got := pause.For(ctx, c.d); got != c.want {
					t.Errorf("returned %v, want %v", got, c.want)
				}
				if took := time.Since(began); took != c.wantTook {
					t.Errorf("took %v, want %v", took, c.wantTook)
				}
			})
		})
	}
}

func TestJitteredPausesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 50 {
			began := time.Now()
			if !pause.Jittered(t.Context(), time.Second) {
				t.Fatal("the pause was cut short")
			}
			took := time.Since(began)
			if took < time.Second/2 || took > time.Second {
				t.Errorf("took %v, want between half a second and a second", took)
			}
			seen[took] = true
		}
		if len(seen) < 25 {
			t.Errorf("50 pauses took only %d different times", len(seen))
		}
	})
}
