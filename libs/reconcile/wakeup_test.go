package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/reconcile"
)

// wakeUp is a step of a random plan.
type wakeUp struct {
	at, in time.Duration
	key    string
}

// TestNoWakeUpIsLost plays random plans against slow and failing reconciliations. For each wake-up, a
// reconciliation must begin between the wake-up and its due time, plus the longest one that may have
// been running. No key may be processed twice at once.
func TestNoWakeUpIsLost(t *testing.T) {
	const longest = 3 * time.Second
	rapid.Check(t, func(rt *rapid.T) {
		plan := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wakeUp {
			return wakeUp{
				at:  time.Duration(rapid.IntRange(0, 30).Draw(t, "at")) * time.Second,
				in:  time.Duration(rapid.IntRange(0, 10).Draw(t, "in")) * time.Second,
				key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
			}
		}), 1, 30).Draw(rt, "plan")
		seed := rapid.Uint64().Draw(rt, "seed")
		if problem := play(t, plan, seed, longest); problem != "" {
			rt.Fatal(problem)
		}
	})
}

func play(t *testing.T, plan []wakeUp, seed uint64, longest time.Duration) (problem string) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu      sync.Mutex
			random  = rand.New(rand.NewPCG(seed, 1))
			began   = map[string][]time.Duration{}
			working = map[string]bool{}
			start   = time.Now()
		)
		q := reconcile.New(reconcile.Options[string]{
			Name: "test", Workers: 3, Log: slog.New(slog.DiscardHandler), Random: rand.New(rand.NewPCG(seed, 2)),
			Reconcile: func(_ context.Context, key string) (reconcile.Result, error) {
				mu.Lock()
				if working[key] {
					problem = key + " was worked on twice at once"
				}
				working[key] = true
				began[key] = append(began[key], time.Since(start))
				took, outcome := time.Duration(random.Int64N(int64(longest))), random.IntN(4)
				mu.Unlock()
				<-time.After(took)
				mu.Lock()
				working[key] = false
				mu.Unlock()
				switch outcome {
				case 0:
					return reconcile.Result{}, errors.New("boom")
				case 1:
					return reconcile.Result{After: took}, nil
				}
				return reconcile.Result{}, nil
			},
		})
		stop := run(t, q)
		for _, w := range plan {
			time.AfterFunc(w.at, func() { q.AddAfter(w.key, w.in) })
		}
		<-time.After(10 * time.Minute)
		stop()
		for _, w := range plan {
			inTime := func(at time.Duration) bool { return at >= w.at && at <= w.at+w.in+longest }
			if !slices.ContainsFunc(began[w.key], inTime) {
				problem = fmt.Sprintf("wake-up %+v was lost; reconciliations began at %v", w, began[w.key])
			}
		}
	})
	return problem
}
