package memory

import (
	"context"
	"errors"
	"runtime/debug"
	"testing"

	"pgregory.net/rapid"
)

func TestGCPercentFollowsBudget(t *testing.T) {
	for _, c := range []struct {
		name          string
		inUse, budget uint64
		want          int
	}{
		{"a small heap is left as it is", 20 * MiB, 1024 * MiB, 100},
		{"far below the budget it is four times what is in use", 100 * MiB, 1024 * MiB, 400},
		{"nearer to it, what the budget leaves", 256 * MiB, 1024 * MiB, 300},
		{"with half of it in use, as by default", 512 * MiB, 1024 * MiB, 100},
		{"never less than by default", 900 * MiB, 1024 * MiB, 100},
		{"also when it is used up", 2048 * MiB, 1024 * MiB, 100},
		{"no budget is the default", 100 * MiB, 0, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := percent(c.inUse, c.budget); got != c.want {
				t.Errorf("percent(%d MiB, %d MiB) = %d, want %d", c.inUse/MiB, c.budget/MiB, got, c.want)
			}
		})
	}
}

func TestHeapStaysWithinBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inUse, budget := rapid.Uint64Range(1, 1<<40).Draw(t, "in use"), rapid.Uint64Range(0, 1<<40).Draw(t, "budget")
		p := percent(inUse, budget)
		if p < usual || p > most {
			t.Fatalf("%d percent", p)
		}
		if p > usual && inUse+inUse/100*uint64(p) > budget {
			t.Fatalf("%d in use and %d percent are more than %d", inUse, p, budget)
		}
	})
}

func TestSpendRestoresGCPercent(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Spend(ctx, 1024*MiB); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("it is at %d percent", got)
	}
}
