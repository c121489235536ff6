package workspace

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/blobs"
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
	defer b.cache.Hold(digests(plan.Layers), append(entries, artifactEntry(plan)...))()
	if err := b.cache.Fetch(ctx, entries); err != nil {
		return err
	}
	if hash := t.artifact(plan); hash != "" {
		_, err = b.cache.Artifact(ctx, hash)
	}
	return err
}

// Keep has the cache keep what an instance's directory was built of, or will be; nil lets
// go of that, see Trim.
func (b *Builder) Keep(id fleet.InstanceID, plan *fleet.Plan) {
	var needs blobs.Needs
	if plan != nil {
		needs.Versions = digests(plan.Layers)
		for _, e := range artifactEntry(*plan) {
			needs.Artifacts = append(needs.Artifacts, e.SHA256)
		}
	}
	b.cache.Keep(string(id), needs)
}

// Trim has the cache go back to its limit.
func (b *Builder) Trim() { b.cache.Trim() }
