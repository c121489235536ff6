package reconcile_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/reconcile"
)

func TestSteadyQueueDoesNotAllocate(t *testing.T) {
	done := make(chan struct{}, 1)
	q := reconcile.New(reconcile.Options[int]{
		Name: "test", Log: slog.New(slog.DiscardHandler),
		Reconcile: func(context.Context, int) (reconcile.Result, error) {
			done <- struct{}{}
			return reconcile.Result{}, nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = q.Run(ctx) })
	key := 0
	allocs := testing.AllocsPerRun(1000, func() {
		key = (key + 1) % 8
		q.Add(key)
		<-done
	})
	cancel()
	wg.Wait()
	if allocs > 0 {
		t.Errorf("%v allocations for each added key", allocs)
	}
}

func BenchmarkAddAndReconcile(b *testing.B) {
	var left sync.WaitGroup
	q := reconcile.New(reconcile.Options[int]{
		Name: "bench", Workers: 4, Log: slog.New(slog.DiscardHandler),
		Reconcile: func(context.Context, int) (reconcile.Result, error) { left.Done(); return reconcile.Result{}, nil },
	})
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = q.Run(ctx) })
	left.Add(b.N)
	b.ReportAllocs()
	for i := range b.N {
		q.Add(i)
	}
	left.Wait()
	cancel()
	wg.Wait()
}
