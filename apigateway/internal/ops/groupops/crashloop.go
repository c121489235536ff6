package groupops

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ResetCrashLoop makes the crashes of a group so far count no more: the enforcer ends a pause after
// them, and the next pause is the shortest again. changed is false when the group was not paused;
// then nothing is written. NotFound when the group does not exist.
func (o *Groups) ResetCrashLoop(ctx context.Context, by txn.Actor, name fleet.GroupName) (changed bool, err error) {
	_, err = o.MutateGroup(ctx, by, name, func(s *view.Snapshot) (txn.Change, error) {
		g, err := Find(s, name)
		if err != nil {
			return txn.Change{}, err
		}
		loop, paused := s.CrashLoops.Get(name)
		if changed = paused && !loop.ResetBy(g); !changed {
			return txn.Change{}, nil
		}
		next := *g
		next.CrashesResetAt = o.Now()
		if !next.CrashesResetAt.After(loop.Since) { // Since is from the node's clock, which may be ahead
			next.CrashesResetAt = loop.Since.Add(time.Millisecond)
		}
		c := txn.Change{
			Writes: []store.Write{store.Replace(keys.Group(name), next, g.ModRev)},
			Audit:  txn.Entry{Action: "group.crash-loop.reset", Resource: "group", ID: string(name)},
		}
		c.Audit.Before, c.Audit.After = GroupRecords(s, g, &next)
		return c, nil
	})
	return changed, err
}
