package collect

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
)

// first is how long after its start a replica collects for the first time, so that
// one that is restarted all the time does nothing else.
const first = 5 * time.Minute

// Keeper collects from time to time, and when it is asked to. It is safe for
// concurrent use: one cycle runs at a time.
type Keeper struct {
	collector *Collector
	retire    func(ctx context.Context) error
	log       *slog.Logger
	done      func(Report)

	mu sync.Mutex // held over a cycle
}

// NewKeeper makes a keeper. retire deletes the versions nobody needs any more, before
// each cycle; done hears of each that ended.
func NewKeeper(c *Collector, retire func(ctx context.Context) error, done func(Report), log *slog.Logger) *Keeper {
	return &Keeper{collector: c, retire: retire, done: done, log: log}
}

// Run collects every now and then until ctx ends.
func (k *Keeper) Run(ctx context.Context, every time.Duration) error {
	for pause.For(ctx, min(first, every)) {
		if _, err := k.Now(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("content that nobody refers to was not removed; trying again later", "error", err)
		}
		if !pause.For(ctx, every-min(first, every)) {
			break
		}
	}
	return ctx.Err()
}

// Now collects once, and waits for the cycle under way and for publishes that are open
// as long as ctx allows.
func (k *Keeper) Now(ctx context.Context) (Report, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.retire(ctx); err != nil {
		return Report{}, errs.Wrap("collect.Now", err)
	}
	r, err := k.collector.Cycle(ctx)
	k.done(r)
	if r.Removed > 0 {
		k.log.Info("content that nobody refers to was removed", "blobs", r.Removed, "bytes", r.Bytes)
	}
	return r, err
}
