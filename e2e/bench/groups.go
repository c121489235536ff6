package main

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// claimInstances instances have claimSlots slots each, and each claim takes one.
	claimInstances = 200
	claimSlots     = 100
	// claimers claim concurrently.
	claimers = 64
)

// measureGroups measures the operation of groups: the enforcer's decisions, scaling and deployments with
// simulated instances, and claims.
func measureGroups(ctx context.Context, b *bench) error {
	figures, err := goBench(ctx, "./enforcer/internal/controller", "^BenchmarkPass$")
	if err != nil {
		return err
	}
	for _, f := range figures {
		b.report(f.id, f.value, f.unit, passLimit)
	}
	for _, measure := range []func(context.Context, *bench) error{measureChanges, measureScale, measureRollouts, measureClaims} {
		if err := measure(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// measureClaims measures claims of slots of ready instances over HTTP, until all slots are taken.
func measureClaims(ctx context.Context, b *bench) error {
	s, err := b.startStandalone(ctx, "-memory", "1000000", "-cpu", "1000000")
	if err != nil {
		return err
	}
	defer s.stop()
	spec := map[string]any{
		"name": "claimed", "command": idler, "memoryMb": 16, "maxInstances": 0, "maxPlayers": claimSlots, "shutdownGraceSeconds": 0,
		"portRangeStart": 20000, "portRangeEnd": 29999,
	}
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return err
	}
	if err := s.scale(ctx, "claimed", claimInstances); err != nil {
		return err
	}
	body := map[string]any{"selectors": []any{map[string]any{"group": "claimed"}}, "slots": 1}
	var (
		left   atomic.Int64
		wg     sync.WaitGroup
		mu     sync.Mutex
		took   []time.Duration
		failed error
	)
	left.Store(claimInstances * claimSlots)
	began := time.Now()
	for range claimers {
		wg.Go(func() {
			var own []time.Duration
			var err error
			for err == nil && left.Add(-1) >= 0 {
				at := time.Now()
				err = s.call(ctx, http.MethodPost, "/api/v1/allocations", body, nil)
				own = append(own, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	b.report("claim_per_s", float64(len(took))/time.Since(began).Seconds(), "1/s", -1)
	b.report("claim_p99_ms", quantile(took, 0.99), "ms", -1)
	return nil
}
