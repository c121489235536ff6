// Package memory lets the garbage collector use spare memory to save CPU time.
//
// By default, Go collects when there is as much garbage as live data, and each collection walks
// all live data. A process that holds a large fleet and changes much of it at once spends a third
// of its time on that. With a budget, collections are rarer while the heap is well below the
// budget. Near it and above it, the default applies: a budget is not a limit.
package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// MiB is the unit of budgets.
	MiB = 1 << 20
	// usual and most are the default and maximum GC percentage: garbage relative to live data.
	usual, most = 100, 400
	// small is the live heap below which the budget has no effect: collections are cheap then, and
	// many such processes share a host.
	small = 64 * MiB
	// step is the smallest change of the percentage that is applied.
	step = 10
	// every is the interval between adjustments.
	every = time.Second
)

// live is the metric of the live heap after the last collection.
const live = "/gc/heap/live:bytes"

// Spend adjusts the garbage collector to a heap budget in bytes until ctx ends. Then it restores
// the previous setting and returns ctx's error. The setting applies to the whole process, so only
// one Spend may run at a time.
func Spend(ctx context.Context, budget uint64) error {
	before := debug.SetGCPercent(usual)
	defer debug.SetGCPercent(before)
	now := usual
	tick := time.NewTicker(every)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: live}}
	for {
		metrics.Read(sample)
		if want := percent(sample[0].Value.Uint64(), budget); want != now && (want == usual || max(want-now, now-want) >= step) {
			debug.SetGCPercent(want)
			now = want
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// percent returns the GC percentage for a live heap size and a budget.
func percent(inUse, budget uint64) int {
	if inUse < small || inUse >= budget {
		return usual
	}
	return int(min(max((budget-inUse)*100/inUse, usual), most))
}
