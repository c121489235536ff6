package workspace

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/render"
)

// Prefetch brings the content that a directory will be built of, so that building it
// need not wait. A static directory that keeps what it has may need none of it: nothing
// is fetched for one. Errors are those that Build would meet.
func (b *Builder) Prefetch(ctx context.Context, plan fleet.Plan) error {
	if plan.Static && !plan.Override {
		return nil
	}
	t, err := b.merge(ctx, plan.Layers, render.RulesOf(plan, nil))
	if err != nil {
		return err
	}
	entries := t.entries()
	defer b.cache.Hold(digests(plan.Layers), entries)()
	return b.cache.Fetch(ctx, entries)
}
