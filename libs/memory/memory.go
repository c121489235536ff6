// Package memory has the garbage collector use memory that may be used, so that it
// takes less processor time.
//
// Go lets as much garbage pile up as is in use, and then walks over all that is in
// use. A process that holds a large fleet and changes much of it at once spends a
// third of its time so. With a budget the collector comes more rarely while the
// heap is well below it, and as by default near it and beyond: a budget is no limit,
// and nothing fails or slows down because it is used up.
package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// MiB is the unit budgets are given in.
	MiB = 1 << 20
	// usual and most are how much garbage, in percent of what is in use, is let to
	// pile up by default, and at most.
	usual, most = 100, 400
	// small is what a heap in use needs for the budget to matter: below it there is
	// little to walk over, and many such processes share a host.
	small = 64 * MiB
	// step is the change of the percentage that is worth making.
	step = 10
	// every is how often it is looked at.
	every = time.Second
)

// live is the metric of what was in use at the end of the last collection.
const live = "/gc/heap/live:bytes"

// Spend keeps the collector to a budget of heap, in bytes, until ctx ends; then it
// is as before. It returns ctx's error. The setting is the whole process': one at a time.
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

// percent is how much garbage may pile up on so much in use.
func percent(inUse, budget uint64) int {
	if inUse < small || inUse >= budget {
		return usual
	}
	return int(min(max((budget-inUse)*100/inUse, usual), most))
}
