// Package gc is the garbage collector of a blob store. It removes blobs that nothing refers
// to, and never one that a publish relies on.
//
//	mark ──▶ condemn ──▶ seal ──▶ settle ──▶ mark again ──▶ bury
//
// Condemn moves unmarked blobs into this cycle's trash, from which a read or a publish
// restores them. The seal lists the publishes that are open after the last move. When all
// of them have ended, the cycle removes what is still not marked.
//
// Why no publish loses a blob: Consider the moment when a publish checked that a blob is
// stored. If the blob was condemned later, the publish was open at the seal or had already
// ended; either way, the second mark sees its version. If the blob was condemned earlier,
// the check restored it. No clocks are compared. A collector that was paused can only move
// blobs into its own trash, where they are still found, or remove what is in there.
//
// Nothing is removed if a manifest, or the recipe of a large file in it, cannot be read.
// The proof requires that a publish begins before it relies on any blob, and that each
// check asks the store itself. A publish that is still open after half a day is ended: its
// record is deleted, and so the fence of its transaction fails.
package gc

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// Referrers knows what refers to content.
type Referrers interface {
	// Roots returns the digests of all manifests that must be kept, at one revision.
	Roots(ctx context.Context) ([]string, error)
	// Publishes returns the IDs of the open publishes.
	Publishes(ctx context.Context) ([]string, error)
	// EndPublish makes an open publish unable to commit. It is no error if the publish has
	// already ended.
	EndPublish(ctx context.Context, id string) error
}

// Collector collects in one store. It is not safe for concurrent use.
type Collector struct {
	Store     *blob.Store
	Referrers Referrers
	// Replica is the prefix of its cycles' names, so that the replica's next process can
	// finish them.
	Replica string
	// Poll is the interval of checks whether publishes have ended.
	Poll time.Duration
	// Patience is how long a cycle waits for a publish before it ends it. 0 means half a
	// day.
	Patience time.Duration
	// Forsaken is how long an abandoned cycle of another replica is left alone. 0 means a
	// day.
	Forsaken time.Duration

	// between is called between any two steps, in tests; may be nil.
	between func()
}

// Report is the result of a cycle.
type Report struct {
	Marked  int   `json:"marked"` // referenced blobs
	Removed int   `json:"removed"`
	Bytes   int64 `json:"bytes"` // size of the removed files on the disk
}

// patience is the default of Collector.Patience.
const patience = 12 * time.Hour

// forsaken is the default of Collector.Forsaken.
const forsaken = 24 * time.Hour

// Cycle collects once. First, it finishes interrupted cycles. It waits for open publishes,
// at most half a day. After an error, the next cycle continues.
func (c *Collector) Cycle(ctx context.Context) (Report, error) {
	var total Report
	for {
		trash, err := c.Store.Adopt(ctx, c.name(), c.own, c.forsaken())
		if err != nil || trash == nil {
			break // the next Cycle tries again
		}
		r, err := c.bury(ctx, trash, newMarking())
		total = total.plus(r)
		if err != nil {
			return total, errs.Wrap("collect.Cycle", err)
		}
	}
	r, err := c.cycle(ctx)
	return total.plus(r), errs.Wrap("collect.Cycle", err)
}

func (r Report) plus(o Report) Report {
	return Report{Marked: max(r.Marked, o.Marked), Removed: r.Removed + o.Removed, Bytes: r.Bytes + o.Bytes}
}

func (c *Collector) name() string { return c.Replica + "-" + rand.Text() }

func (c *Collector) own(name string) bool {
	at := strings.LastIndexByte(name, '-')
	return at >= 0 && name[:at] == c.Replica
}

func (c *Collector) cycle(ctx context.Context) (Report, error) {
	marks := newMarking()
	if err := c.mark(ctx, marks); err != nil {
		return Report{}, err
	}
	trash, err := c.Store.NewCycle(ctx, c.name())
	if err != nil {
		return Report{}, err
	}
	for f, err := range c.Store.Files(ctx) {
		if err != nil {
			return Report{}, err
		}
		if marks.has(f.Sum) && !f.Condemned {
			continue
		}
		c.step()
		if err := trash.Condemn(ctx, f); err != nil {
			return Report{}, err
		}
	}
	return c.bury(ctx, trash, marks)
}

// bury performs the part of a cycle after its last move into the trash. It keeps the first
// marks, because a manifest never changes and is read once.
func (c *Collector) bury(ctx context.Context, trash blob.Cycle, marks *marking) (r Report, err error) {
	if err := c.settle(ctx); err != nil {
		return r, err
	}
	if err := c.mark(ctx, marks); err != nil {
		return r, err
	}
	r.Marked = len(marks.blobs)
	for f, err := range trash.Condemned(ctx) {
		if err != nil {
			return r, err
		}
		c.step()
		if marks.has(f.Sum) {
			if err := trash.Restore(ctx, f); err != nil {
				return r, err
			}
			continue
		}
		n, err := trash.Bury(ctx, f)
		if err != nil {
			return r, err
		}
		r.Removed, r.Bytes = r.Removed+1, r.Bytes+n
	}
	return r, trash.End(ctx)
}

// settle waits until all publishes that are open now have ended. It ends those that take
// too long.
func (c *Collector) settle(ctx context.Context) error {
	c.step()
	sealed, err := c.Referrers.Publishes(ctx)
	began := time.Now()
	for err == nil && len(sealed) > 0 {
		c.step()
		if pause.For(ctx, c.Poll); ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > c.patience() {
			for _, id := range sealed {
				if err := c.Referrers.EndPublish(ctx, id); err != nil {
					return err
				}
			}
		}
		var open []string
		open, err = c.Referrers.Publishes(ctx)
		sealed = slices.DeleteFunc(sealed, func(id string) bool { return !slices.Contains(open, id) })
	}
	return err
}

func (c *Collector) forsaken() time.Duration { return cmp.Or(c.Forsaken, forsaken) }

func (c *Collector) patience() time.Duration { return cmp.Or(c.Patience, patience) }

func (c *Collector) step() {
	if c.between != nil {
		c.between()
	}
}
