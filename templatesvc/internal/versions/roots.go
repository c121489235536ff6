package versions

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Roots returns the digests of all manifests that must not be collected, at one revision:
// those of versions (also doomed ones), heads, the latest content of sources, plans and
// drafts.
func (s *Service) Roots(ctx context.Context) ([]string, error) {
	digests, err := s.roots(ctx)
	return digests, errs.Wrap("template.Roots", err)
}

func (s *Service) roots(ctx context.Context) (digests []string, err error) {
	add := func(some ...string) {
		for _, d := range some {
			if d != "" {
				digests = append(digests, d)
			}
		}
	}
	versions, rev, err := store.List(ctx, s.cfg.Store, keys.AllTemplateVersions())
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		add(v.Digest)
	}
	if err := eachAt(ctx, s, keys.TemplatesDoomed(), rev, func(d content.TemplateDoomed) { add(d.Version.Digest) }); err != nil {
		return nil, err
	}
	if err := eachAt(ctx, s, keys.TemplateHeads(), rev, func(h content.TemplateHead) { add(h.Digest, h.SourceDigest) }); err != nil {
		return nil, err
	}
	if err := eachAt(ctx, s, keys.TemplateDrafts(), rev, func(d content.TemplateDraft) { add(d.Digest, d.Base) }); err != nil {
		return nil, err
	}
	err = eachAt(ctx, s, keys.Plans(), rev, func(p fleet.StoredPlan) {
		for _, l := range p.Plan.Layers {
			add(l.Digest)
		}
	})
	return digests, err
}

func eachAt[T any](ctx context.Context, s *Service, p keys.Prefix[T], rev int64, do func(T)) error {
	all, err := store.ListAt(ctx, s.cfg.Store, p, rev)
	for _, v := range all {
		do(v)
	}
	return err
}

// Publishes returns the IDs of the open publishes.
func (s *Service) Publishes(ctx context.Context) ([]string, error) {
	open, _, err := store.List(ctx, s.cfg.Store, keys.TemplatePublishes())
	ids := make([]string, 0, len(open))
	for _, p := range open {
		ids = append(ids, p.ID)
	}
	return ids, errs.Wrap("template.Publishes", err)
}

// EndPublish deletes a publish's record, so that the publish can no longer commit. It is no
// error if the publish has already ended.
func (s *Service) EndPublish(ctx context.Context, id string) error {
	key := keys.TemplatePublish(id)
	p, err := store.Get(ctx, s.cfg.Store, key)
	if err == nil {
		s.cfg.Log.Warn("a publish was open for half a day and is ended", "replica", p.Replica, "what", p.What, "since", p.StartedAt)
		_, err = s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(key, p.ModRev)}})
	}
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Conflict) {
		return nil
	}
	return errs.Wrap("template.EndPublish", err)
}
