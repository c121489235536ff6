package gc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
)

// first is the time between the start of a replica and its first collection, so that a
// replica that restarts often does not spend its time collecting.
const first = 5 * time.Minute

// Keeper collects at an interval and on request. It is safe for concurrent use: one cycle
// runs at a time.
type Keeper struct {
	collector *Collector
	retire    func(ctx context.Context) error
	log       *slog.Logger
	done      func(Report)

	mu sync.Mutex // held during a cycle
}

// NewKeeper returns a Keeper. Before each cycle, it calls retire to delete old versions.
// After each, it calls done with the report.
func NewKeeper(c *Collector, retire func(ctx context.Context) error, done func(Report), log *slog.Logger) *Keeper {
	return &Keeper{collector: c, retire: retire, done: done, log: log}
}

// Run collects at an interval until ctx ends.
func (k *Keeper) Run(ctx context.Context, every time.Duration) error {
	for pause.For(ctx, min(first, every)) {
		if _, err := k.Now(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("unreferenced content was not removed; templatesvc retries later", "error", err)
		}
		if !pause.For(ctx, every-min(first, every)) {
			break
		}
	}
	return ctx.Err()
}

// Now collects once. It waits for a running cycle and for open publishes until ctx ends.
func (k *Keeper) Now(ctx context.Context) (Report, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.retire(ctx); err != nil {
		return Report{}, errs.Wrap("collect.Now", err)
	}
	r, err := k.collector.Cycle(ctx)
	k.done(r)
	if r.Removed > 0 {
		k.log.Info("unreferenced content was removed", "blobs", r.Removed, "bytes", r.Bytes)
	}
	return r, err
}
