package supervise

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
)

// prefetchBound is how long content is fetched ahead of its start.
const prefetchBound = 10 * time.Minute

// keep has the cache keep what the generation was built of until it has ended, also for
// the agent after this one. What prepares it keeps what it is built of.
func (i *Instance) keep() {
	s := i.entry.Machine
	switch {
	case s.Phase == "", s.Phase == machine.Ended:
		if i.keeps != "" {
			i.keeps = ""
			i.kit.Workspace.Keep(i.id, nil)
			i.helpers.Go(i.kit.Workspace.Trim)
		}
	case s.Phase == machine.Preparing:
		i.keeps = s.Placement.Plan
	case i.keeps != s.Placement.Plan: // an agent before this one has prepared it
		i.keeps = s.Placement.Plan
		i.kit.Workspace.Keep(i.id, &s.Plan)
	}
}

// prefetch has the content of a generation at hand when the one before it has ended. What
// fails is told when it is built.
func (i *Instance) prefetch(ctx context.Context, before *fleet.Placement) {
	next := i.entry.Machine.Next
	if next == nil || before != nil && before.Generation == next.Generation {
		return
	}
	digest := next.Plan
	i.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, prefetchBound)
		defer cancel()
		plan, err := i.kit.Plan(ctx, digest)
		if err == nil {
			err = i.kit.Workspace.Prefetch(ctx, plan)
		}
		if err != nil {
			i.log.Debug("the next generation's content could not be fetched ahead", "cause", err)
		}
	})
}
