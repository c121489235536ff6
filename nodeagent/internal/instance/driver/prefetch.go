package driver

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// prefetchTimeout bounds the prefetch of a generation's content.
const prefetchTimeout = 10 * time.Minute

// keep makes the cache keep the content of the current generation until it has ended. During
// a preparation prepare does this itself.
func (i *Instance) keep() {
	s := i.entry.Machine
	switch {
	case s.Phase == "", s.Phase == machine.Ended:
		if i.cachedPlan != "" {
			i.cachedPlan = ""
			i.deps.Workspace.Keep(i.id, nil)
			i.helpers.Go(i.deps.Workspace.Trim)
		}
	case s.Phase == machine.Preparing:
		i.cachedPlan = s.Placement.Plan
	case i.cachedPlan != s.Placement.Plan: // an earlier agent prepared it
		i.cachedPlan = s.Placement.Plan
		i.deps.Workspace.Keep(i.id, &s.Plan)
	}
}

// prefetch fetches the content of the next generation before the current one has ended. Errors
// matter only when it is built.
func (i *Instance) prefetch(ctx context.Context, before *fleet.Placement) {
	next := i.entry.Machine.Next
	if next == nil || before != nil && before.Generation == next.Generation {
		return
	}
	digest := next.Plan
	i.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, prefetchTimeout)
		defer cancel()
		plan, err := i.deps.Plan(ctx, digest)
		if err == nil {
			err = i.deps.Workspace.Prefetch(ctx, plan)
		}
		if err != nil {
			i.log.Debug("cannot prefetch the content of the next generation", "cause", err)
		}
	})
}
