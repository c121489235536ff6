package workspace

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// Prefetch fetches the content that a directory will be built from, so that Build need not
// wait. It fetches nothing for a static directory without Override, which may keep its files.
// It returns the errors of Build.
func (b *Builder) Prefetch(ctx context.Context, plan fleet.Plan) error {
	if plan.Static && !plan.Override {
		return nil
	}
	t, err := b.merge(ctx, plan.Layers, render.RulesOf(plan, nil))
	if err != nil {
		return err
	}
	entries := t.entries()
	defer b.cache.Pin(digests(plan.Layers), append(entries, artifactEntry(plan)...))()
	if err := b.cache.Fetch(ctx, entries); err != nil {
		return err
	}
	if hash := t.artifact(plan); hash != "" {
		_, err = b.cache.Artifact(ctx, hash)
	}
	return err
}

// Keep protects the content of an instance's plan from eviction; a nil plan releases it. See
// Trim.
func (b *Builder) Keep(id fleet.InstanceID, plan *fleet.Plan) {
	var needs blobcache.Needs
	if plan != nil {
		needs.Versions = digests(plan.Layers)
		for _, e := range artifactEntry(*plan) {
			needs.Artifacts = append(needs.Artifacts, e.SHA256)
		}
	}
	b.cache.SetNeeds(string(id), needs)
}

// Trim evicts content until the cache is below its limit.
func (b *Builder) Trim() { b.cache.Trim() }
