package operate

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ResetCrashLoop has a group's crashes until now count no more: the enforcer ends a
// pause after them, and the next pause is the shortest again. changed is false when
// nothing was paused and nothing is written then. NotFound when there is no such group.
func (o *Operations) ResetCrashLoop(ctx context.Context, by Actor, name fleet.GroupName) (changed bool, err error) {
	_, err = o.mutateGroup(ctx, by, name, func(s *view.Snapshot) (change, error) {
		g, err := o.group(s, name)
		if err != nil {
			return change{}, err
		}
		loop, paused := s.CrashLoops.Get(name)
		if changed = paused && !loop.ResetBy(g); !changed {
			return change{}, nil
		}
		next := *g
		next.CrashesResetAt = o.now()
		if !next.CrashesResetAt.After(loop.Since) { // by a node's clock, which may be ahead
			next.CrashesResetAt = loop.Since.Add(time.Millisecond)
		}
		c := change{
			writes: []store.Write{store.Replace(store.GroupKey(name), next, g.ModRev)},
			audit:  entry{action: "group.crash-loop.reset", resource: "group", id: string(name)},
		}
		c.audit.before, c.audit.after = groupRecords(s, g, &next)
		return c, nil
	})
	return changed, err
}
