package controller

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// prune is the queue key for deleting crash records. No group has this name.
const prune fleet.GroupName = "/crashes"

// pruneAfter delays a prune, to collect crashes before they are counted.
const pruneAfter = time.Second

// prunePass deletes crash records of owned groups that are too old or too many. The choice
// depends on the crashes of all groups; all replicas make the same choice.
func (c *Controller) prunePass(ctx context.Context, _ fleet.GroupName) (time.Duration, error) {
	own := c.replica.Owned()
	if own.Count() == 0 {
		return 0, nil
	}
	snap, err := c.view.WaitRev(ctx, own.Epoch())
	if err != nil {
		return 0, err
	}
	now := c.now()
	remove, wake := plan.Crashes(c.stamps.crashes(snap.Crashes.All(), now), c.limits, now)
	byGroup := map[fleet.GroupName][]*reports.Crash{}
	for _, crash := range remove {
		byGroup[crash.Group] = append(byGroup[crash.Group], crash)
	}
	for g, crashes := range byGroup {
		fence, ok := own.Fence(g)
		if !ok {
			continue
		}
		const perCrash = 2 // its own record and its tail's
		for some := range slices.Chunk(crashes, max(1, (c.store.MaxOps()-1)/perCrash)) {
			rev, err := c.store.Commit(ctx, forgetting(some, fence))
			if err != nil {
				return 0, errs.Wrap("enforcer.prune", err)
			}
			if _, err := c.view.WaitRev(ctx, rev); err != nil {
				return 0, err
			}
		}
	}
	if wake.IsZero() {
		return 0, nil
	}
	return max(wake.Sub(now), pruneAfter), nil
}

// elsewhere reports whether any node other than n takes instances.
func elsewhere(s *view.Snapshot, n fleet.NodeID) bool {
	for other := range s.NodeSessions.All() {
		d, ok := s.NodesDesired.Get(other)
		if other != n && !(ok && (d.Cordoned || d.Deleted)) {
			return true
		}
	}
	return false
}

// forgetting builds a transaction that deletes crashes and their tails, which have the same
// revisions.
func forgetting(crashes []*reports.Crash, fence store.Fence) store.Txn {
	t := store.Txn{Fences: []store.Fence{fence}}
	for _, c := range crashes {
		t.Writes = append(t.Writes, store.Remove(keys.Crash(c.ID), c.ModRev), store.Remove(keys.CrashTail(c.ID), c.ModRev))
	}
	return t
}
