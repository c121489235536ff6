package supervise

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// prefetchBound is how long content is fetched ahead of its start.
const prefetchBound = 10 * time.Minute

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
