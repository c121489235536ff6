package reconcile_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/reconcile"
)

func TestBackoffDelay(t *testing.T) {
	b := reconcile.Backoff{Base: 10 * time.Millisecond, Max: time.Second}
	for failures, want := range map[int]time.Duration{1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 7: 640 * time.Millisecond, 8: time.Second, 1000: time.Second} {
		if got := b.Delay(failures, nil); got != want {
			t.Errorf("Delay(%d) = %v, want %v", failures, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := reconcile.Backoff{
			Base: time.Duration(rapid.Int64Range(1, 1<<62).Draw(t, "base")),
			Max:  time.Duration(rapid.Int64Range(1, 1<<62).Draw(t, "max")),
		}
		failures := rapid.IntRange(1, 1<<20).Draw(t, "failures")
		exact := b.Delay(failures, nil)
		got := b.Delay(failures, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		if exact < b.Base || exact > max(b.Base, b.Max) || got > exact || got < exact/2 || got <= 0 {
			t.Fatalf("Delay(%d) = %v, jittered %v", failures, exact, got)
		}
	})
}
