package reconcile_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/reconcile"
)

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
