package controller

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// commitTimeout bounds one transaction.
	commitTimeout = 5 * time.Second
	// lostRaces is how often a lost comparison is followed by another attempt at once.
	lostRaces = 5
	// lostRaceWait bounds the wait for what a comparison was lost to: its revision
	// may be that of a key outside the view, which then never reaches it.
	lostRaceWait = time.Second
)

func lostRace(err error) bool {
	lost := store.Lost(err)
	return lost != nil && !lost.Fence
}

// commit performs a transaction. The model keeps nothing of it: the view will
// charge it anew if it happened. On success its revision becomes the floor; an
// unknown outcome becomes the doubt, if placements depend on it.
func (c *Controller) commit(ctx context.Context, b *batch) (rev int64, err error) {
	began := time.Now()
	attempt, cancel := context.WithTimeout(ctx, commitTimeout)
	rev, err = c.store.Commit(attempt, b.txn)
	cancel()
	c.metrics.commit(time.Since(began), b, err)
	b.undo()
	if err == nil {
		c.floor = rev
		c.log.Debug("committed", "placed", len(b.placed), "noted", len(b.noted), "revision", rev)
		return rev, nil
	}
	c.state.room++ // what was noted was not: it is due again
	switch {
	case errs.Is(err, errs.Fenced):
		c.log.Warn("a placement was refused: the shard is not ours any more", "error", err)
	case errs.Is(err, errs.TooLarge):
		c.log.Error("placements are larger than etcd takes: lower the sizes of the values given at start", "error", err)
	case lostRace(err):
		c.log.Debug("a placement met a change, looking again", "error", err)
	default:
		if len(b.placed) > 0 {
			c.doubt = b
		}
		if ctx.Err() == nil {
			c.log.Warn("placements could not be committed, trying again", "error", err)
		}
	}
	return rev, err
}

// settle ends the doubt about a batch: it compares the alloc keys it touches, so
// after one more touch of one of them it has happened before or never will. The
// touch's revision becomes the floor. It is made under any shard that is ours now:
// that some of the batch's shards are lost bars it from now on, but does not show
// whether it happened before. False when etcd did not answer or nothing is ours.
func (c *Controller) settle(ctx context.Context, own *store.Ownership) bool {
	fence, ok := own.Any()
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	for range lostRaces {
		node := c.doubt.holds[0].Node
		have, err := store.Get(ctx, c.store, store.AllocKey(node))
		if err != nil && !errs.Is(err, errs.NotFound) {
			return false
		}
		touch := store.Replace(store.AllocKey(node), fleet.Alloc{Node: node}, have.ModRev)
		rev, err := c.store.Commit(ctx, store.Txn{Fences: []store.Fence{fence}, Writes: []store.Write{touch}})
		switch {
		case err == nil:
			c.floor, c.doubt = rev, nil
			return true
		case !lostRace(err):
			return false
		}
	}
	return false
}

// await brings the state to what a comparison was lost to. False when it does not
// come in time.
func (c *Controller) await(ctx context.Context, rev int64) bool {
	timer := time.NewTimer(lostRaceWait)
	defer timer.Stop()
	for {
		c.state.catchUp(c.inbox, time.Now())
		if c.state.snap.Rev >= rev {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-c.inbox.wake:
		}
	}
}
