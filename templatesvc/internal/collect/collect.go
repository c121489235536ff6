// Package collect removes blobs that nothing refers to from a store on disk, and never
// one that a publish relies on.
//
//	mark ──▶ condemn ──▶ seal ──▶ settle ──▶ mark again ──▶ bury
//
// What is not marked is moved into the trash of this cycle, from where whoever wants a
// blob takes it back. The seal lists the publishes that are open after the last move;
// when all of them have ended, what is still not marked is removed.
//
// Why no publish loses a blob: let it have made sure of one at some moment. Was that
// blob condemned later, then the publish was open at the seal, or had ended; either
// way the second mark sees its version. Was it condemned before, then the publish
// itself took it back. No clock is compared, and a collector that was paused can only
// move blobs into its own trash, where they are still found, or remove what lies
// there. Nothing is removed when a manifest cannot be read, or what a large file that it
// names is joined from. What it rests on: a publish has begun before it relies on
// anything, and asks the store itself each time. One that does not end in half a day is
// ended: its record goes, and with it the fence of its transaction.
package collect

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
)

// Referrers knows what refers to content.
type Referrers interface {
	// Roots are the digests of all manifests that have to stay, as of one moment.
	Roots(ctx context.Context) ([]string, error)
	// Publishes names the publishes that are open.
	Publishes(ctx context.Context) ([]string, error)
	// EndPublish makes a publish that is open unable to commit. One that has ended is no
	// error.
	EndPublish(ctx context.Context, id string) error
}

// Collector collects in one store. Use it from one goroutine.
type Collector struct {
	Store     *blob.Store
	Referrers Referrers
	// Replica prefixes the names of its cycles, so that its next process ends them.
	Replica string
	// Poll is how often it looks whether publishes have ended.
	Poll time.Duration
	// Patience is how long a cycle waits for one publish before it ends it; 0: half a day.
	Patience time.Duration
	// Forsaken is how long a cycle of another replica is left alone that nobody goes on
	// with; 0: a day.
	Forsaken time.Duration

	// between is called between any two steps, for tests; nil does nothing.
	between func()
}

// Report is what a cycle came to.
type Report struct {
	Marked  int   `json:"marked"` // blobs that are referred to
	Removed int   `json:"removed"`
	Bytes   int64 `json:"bytes"` // on the disk, of what was removed
}

// patience is how long a cycle waits for one publish.
const patience = 12 * time.Hour

// forsaken is the age from which the trash of another replica is taken over.
const forsaken = 24 * time.Hour

// Cycle collects once. An error leaves the rest to the next cycle. It waits for the
// publishes that are open, half a day at most.
func (c *Collector) Cycle(ctx context.Context) (Report, error) {
	var total Report
	for {
		trash, err := c.Store.Adopt(ctx, c.name(), c.own, c.forsaken())
		if err != nil || trash == nil {
			break // what cannot be taken over waits
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

// bury is the part of a cycle after its last move into the trash. What was marked
// before stays marked: a manifest never changes and is read once.
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

// settle waits until the publishes that are open now have ended, and ends those that
// take too long.
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
