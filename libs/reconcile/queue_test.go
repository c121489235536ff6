package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/reconcile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Reconciler that records when it began with which key.
type recorder struct {
	mu    sync.Mutex
	start time.Time
	runs  []string
	// do performs a reconciliation; nil does nothing.
	do func(ctx context.Context, key string, run int) (reconcile.Result, error)
}

func (r *recorder) reconcile(ctx context.Context, key string) (reconcile.Result, error) {
	r.mu.Lock()
	r.runs = append(r.runs, fmt.Sprintf("%s@%v", key, time.Since(r.start)))
	n := len(r.runs)
	r.mu.Unlock()
	if r.do == nil {
		return reconcile.Result{}, nil
	}
	return r.do(ctx, key, n)
}

func (r *recorder) want(t *testing.T, runs ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(runs, r.runs); diff != "" {
		t.Error(diff)
	}
}

// start runs a queue in the synctest bubble. The returned function stops it and waits.
func start(t *testing.T, r *recorder, o reconcile.Options[string]) (*reconcile.Queue[string], func()) {
	t.Helper()
	r.start = time.Now()
	o.Name, o.Reconcile = "test", r.reconcile
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	q := reconcile.New(o)
	return q, run(t, q)
}

func run(t *testing.T, q *reconcile.Queue[string]) func() {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := q.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// takes makes every reconciliation last d.
func takes(d time.Duration) func(context.Context, string, int) (reconcile.Result, error) {
	return func(context.Context, string, int) (reconcile.Result, error) {
		<-time.After(d)
		return reconcile.Result{}, nil
	}
}

func TestWakeUpsCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: takes(time.Second)}
		q, stop := start(t, r, reconcile.Options[string]{})
		defer stop()
		q.Add("a")
		synctest.Wait()
		for range 5 {
			q.Add("b")
		}
		<-time.After(time.Minute)
		r.want(t, "a@0s", "b@1s")
	})
}

func TestAddWhileWorkingReconcilesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: takes(2 * time.Second)}
		q, stop := start(t, r, reconcile.Options[string]{Workers: 4})
		defer stop()
		q.Add("a")
		<-time.After(time.Second)
		q.Add("a")
		q.Add("a")
		<-time.After(time.Minute)
		r.want(t, "a@0s", "a@2s")
	})
}

func TestTheEarliestDueTimeWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		q, stop := start(t, r, reconcile.Options[string]{})
		defer stop()
		q.AddAfter("a", 10*time.Second)
		q.AddAfter("a", 5*time.Second)
		q.AddAfter("a", 20*time.Second)
		q.AddAfter("b", 0)
		q.AddAfter("c", 3*time.Second)
		<-time.After(time.Minute)
		r.want(t, "b@0s", "c@3s", "a@5s")
	})
}

func TestAddDoesNotCancelDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		q, stop := start(t, r, reconcile.Options[string]{})
		defer stop()
		q.AddAfter("a", 5*time.Second)
		<-time.After(time.Second)
		q.Add("a")
		<-time.After(time.Minute)
		r.want(t, "a@1s", "a@5s")
	})
}

func TestResultAfterReconcilesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: func(_ context.Context, _ string, run int) (reconcile.Result, error) {
			if run < 3 {
				return reconcile.Result{After: 7 * time.Second}, nil
			}
			return reconcile.Result{}, nil
		}}
		q, stop := start(t, r, reconcile.Options[string]{})
		defer stop()
		q.Add("a")
		<-time.After(time.Hour)
		r.want(t, "a@0s", "a@7s", "a@14s")
		if s := q.Stats(); s != (reconcile.Stats{}) {
			t.Errorf("left behind: %+v", s)
		}
	})
}

func TestFailuresBackOffUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: func(_ context.Context, _ string, run int) (reconcile.Result, error) {
			switch {
			case run == 5:
				return reconcile.Result{After: 10 * time.Second}, nil
			case run == 2:
				panic("boom")
			case run < 7:
				return reconcile.Result{After: time.Millisecond}, errors.New("boom")
			}
			return reconcile.Result{}, nil
		}}
		var log bytes.Buffer
		q, stop := start(t, r, reconcile.Options[string]{
			Backoff: reconcile.Backoff{Base: time.Second, Max: 3 * time.Second},
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
		})
		q.Add("a")
		<-time.After(time.Hour)
		r.want(t, "a@0s", "a@1s", "a@3s", "a@6s", "a@9s", "a@19s", "a@20s")
		stop()
		if !strings.Contains(log.String(), "panic: boom") || !strings.Contains(log.String(), "queue_test.go") {
			t.Errorf("the panic is not explained in the log:\n%s", log.String())
		}
	})
}

func TestAddIgnoresBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: func(_ context.Context, _ string, run int) (reconcile.Result, error) {
			if run == 1 {
				return reconcile.Result{}, errors.New("boom")
			}
			return reconcile.Result{}, nil
		}}
		q, stop := start(t, r, reconcile.Options[string]{Backoff: reconcile.Backoff{Base: time.Minute, Max: time.Minute}})
		defer stop()
		q.Add("a")
		<-time.After(time.Second)
		q.Add("a")
		synctest.Wait()
		r.want(t, "a@0s", "a@1s")
	})
}

func TestAFencedKeyIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: func(context.Context, string, int) (reconcile.Result, error) {
			return reconcile.Result{}, errs.WrapAs(errs.Fenced, "store.Commit", errors.New("shard 3 moved"))
		}}
		q, stop := start(t, r, reconcile.Options[string]{})
		defer stop()
		q.Add("a")
		<-time.After(time.Hour)
		r.want(t, "a@0s")
	})
}

func TestAReconciliationIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: func(ctx context.Context, _ string, run int) (reconcile.Result, error) {
			if run == 1 {
				<-ctx.Done()
			}
			return reconcile.Result{}, ctx.Err()
		}}
		q, stop := start(t, r, reconcile.Options[string]{Timeout: 5 * time.Second, Backoff: reconcile.Backoff{Base: time.Second}})
		defer stop()
		q.Add("a")
		<-time.After(time.Hour)
		r.want(t, "a@0s", "a@6s")
	})
}

func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: takes(time.Second)}
		q, stop := start(t, r, reconcile.Options[string]{Workers: 2})
		defer stop()
		for _, key := range []string{"a", "b", "c"} {
			q.Add(key)
			synctest.Wait() // keeps the order of a and b deterministic
		}
		if s := q.Stats(); s != (reconcile.Stats{Ready: 1, Working: 2}) {
			t.Errorf("got %+v", s)
		}
		<-time.After(time.Minute)
		r.want(t, "a@0s", "b@0s", "c@1s")
	})
}

func TestResyncAddsEveryKeyEachPeriod(t *testing.T) {
	keys := func() iter.Seq[string] { return slices.Values([]string{"a", "b", "c"}) }
	for _, c := range []struct {
		name   string
		random *rand.Rand
	}{{"all at once without a random source", nil}, {"spread with one", rand.New(rand.NewPCG(1, 2))}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{}
				_, stop := start(t, r, reconcile.Options[string]{Resync: time.Minute, Keys: keys, Random: c.random})
				<-time.After(time.Minute - 1)
				r.want(t)
				<-time.After(10*time.Minute + 2) // ten periods; rounding may shorten the last jitter
				stop()
				seen := map[string]int{}
				for _, run := range r.runs {
					key, _, _ := strings.Cut(run, "@")
					seen[key]++
				}
				for _, key := range []string{"a", "b", "c"} {
					if seen[key] < 10 || seen[key] > 11 {
						t.Errorf("%s was looked at %d times in eleven periods", key, seen[key])
					}
				}
			})
		})
	}
}

func TestStopWaitsForWorkersAndKeepsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: func(ctx context.Context, _ string, run int) (reconcile.Result, error) {
			if run == 1 {
				<-ctx.Done()
				<-time.After(3 * time.Second)
			}
			return reconcile.Result{}, ctx.Err()
		}}
		q, stop := start(t, r, reconcile.Options[string]{})
		q.Add("a")
		q.Add("b")
		<-time.After(time.Second)
		stop()
		if took := time.Since(r.start); took != 4*time.Second {
			t.Errorf("stopped after %v, want 4s", took)
		}
		r.want(t, "a@0s")
		q.AddAfter("c", time.Second) // between two runs

		stop = run(t, q)
		defer stop()
		<-time.After(time.Minute)
		r.want(t, "a@0s", "b@4s", "a@4s", "c@5s")
	})
}

func TestASecondRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stop := start(t, &recorder{}, reconcile.Options[string]{})
		defer stop()
		synctest.Wait()
		if err := q.Run(t.Context()); !errs.Is(err, errs.Conflict) {
			t.Errorf("got %v", err)
		}
	})
}

type observer struct {
	mu   sync.Mutex
	seen []string
}

func (o *observer) Reconciled(waited, took time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, fmt.Sprintf("%v %v %v", waited, took, err))
}

func TestObserverSeesEveryReconciliation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{do: takes(time.Second)}
		o := &observer{}
		q, stop := start(t, r, reconcile.Options[string]{Observer: o})
		defer stop()
		q.Add("a")
		q.Add("b")
		<-time.After(time.Minute)
		o.mu.Lock()
		defer o.mu.Unlock()
		if diff := cmp.Diff([]string{"0s 1s <nil>", "1s 1s <nil>"}, o.seen); diff != "" {
			t.Error(diff)
		}
	})
}
