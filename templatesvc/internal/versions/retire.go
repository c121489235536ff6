package versions

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// mourning is how long the versions and the history of a removed template are kept, because
// it may come back.
const mourning = 7 * 24 * time.Hour

// keepPictures is how many versions are kept of the template with users' pictures. Each
// upload creates a version, nobody rolls them back, and deleted pictures must disappear.
const keepPictures = 1

// Retire deletes what is no longer needed. Of each template, it keeps the youngest keep
// versions, or all if keep is 0; of the template with users' pictures, always keepPictures.
// It deletes everything of templates that have had no head for seven days. It never deletes
// heads and versions in use. First, it completes interrupted deletions.
func (s *Service) Retire(ctx context.Context, keep int) error {
	if err := s.SettleDoomed(ctx); err != nil {
		return err
	}
	versions, rev, err := store.List(ctx, s.cfg.Store, keys.AllTemplateVersions())
	if err != nil {
		return errs.Wrap("template.Retire", err)
	}
	heads := map[content.TemplateRef]content.TemplateHead{}
	if err := eachAt(ctx, s, keys.TemplateHeads(), rev, func(h content.TemplateHead) { heads[h.TemplateRef] = h }); err != nil {
		return errs.Wrap("template.Retire", err)
	}
	byRef := map[content.TemplateRef][]content.TemplateVersion{}
	for _, v := range versions {
		byRef[v.TemplateRef] = append(byRef[v.TemplateRef], v)
	}
	var old []content.TemplateVersion
	for _, ref := range slices.SortedFunc(maps.Keys(byRef), func(a, b content.TemplateRef) int { return cmp.Compare(a.String(), b.String()) }) {
		if head, alive := heads[ref]; alive {
			most := keep
			if ref == content.AvatarTemplate {
				most = keepPictures
			}
			old = append(old, surplus(head, byRef[ref], most)...)
		} else if err := s.retireGone(ctx, ref); err != nil {
			return errs.Wrap("template.Retire", err)
		}
	}
	if err := s.deleteUnused(ctx, heads, old); err != nil {
		return errs.Wrap("template.Retire", err)
	}
	return errs.Wrap("template.Retire", s.bury(ctx))
}

// surplus returns the oldest versions beyond keep, except the head.
func surplus(head content.TemplateHead, versions []content.TemplateVersion, keep int) []content.TemplateVersion {
	if keep <= 0 || len(versions) <= keep {
		return nil
	}
	slices.SortFunc(versions, func(a, b content.TemplateVersion) int { return a.CreatedAt.Compare(b.CreatedAt) })
	old := versions[:len(versions)-keep]
	return slices.DeleteFunc(slices.Clone(old), func(v content.TemplateVersion) bool { return v.Digest == head.Digest })
}

// bury deletes the remains of templates that were removed long ago.
func (s *Service) bury(ctx context.Context) error {
	gone, _, err := store.List(ctx, s.cfg.Store, keys.TemplatesGone())
	if err != nil {
		return err
	}
	for _, g := range gone {
		if err := s.buryOne(ctx, g); err != nil && !errs.Is(err, errs.Conflict) { // created again meanwhile
			return err
		}
	}
	return nil
}

// removeAtOnce is the maximum number of removals per transaction.
const removeAtOnce = 100

// buryOne deletes the history and the drafts of a template that has no versions left. It
// deletes the oldest moves first, so that an interrupted run leaves a history that
// continues its numbering.
func (s *Service) buryOne(ctx context.Context, g content.TemplateGone) error {
	record := store.Remove(keys.TemplateGone(g.TemplateRef), g.ModRev)
	head, err := s.head(ctx, g.TemplateRef)
	if err != nil {
		return err
	}
	if head.ModRev != 0 {
		_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{record}})
		return err
	}
	if s.cfg.Now().Sub(g.At) < mourning {
		return nil
	}
	versions, rev, err := store.List(ctx, s.cfg.Store, keys.TemplateVersions(g.TemplateRef))
	if err != nil || len(versions) > 0 {
		return err
	}
	doomed, err := store.ListAt(ctx, s.cfg.Store, keys.TemplatesDoomedOf(g.TemplateRef), rev)
	if err != nil || len(doomed) > 0 { // a deletion in progress may restore them
		return err
	}
	moves, err := s.History(ctx, g.TemplateRef)
	if err != nil {
		return err
	}
	drafts, _, err := store.List(ctx, s.cfg.Store, keys.TemplateDraftsOf(g.TemplateRef))
	if err != nil {
		return err
	}
	var writes []store.Write
	for _, d := range drafts {
		writes = append(writes, store.Remove(draftKey(d), d.ModRev))
	}
	for _, m := range moves {
		writes = append(writes, store.Remove(keys.TemplateMove(m.TemplateRef, m.Number), m.ModRev))
	}
	for part := range slices.Chunk(append(writes, record), removeAtOnce) {
		still := []store.Guard{store.Missing(keys.TemplateHead(g.TemplateRef))}
		if _, err := s.cfg.Store.Commit(ctx, store.Txn{Guards: still, Writes: part}); err != nil {
			return err
		}
	}
	return nil
}

// retireGone deletes the versions of a template whose head was removed long ago. It skips a
// template without history, because the time of the removal is unknown.
func (s *Service) retireGone(ctx context.Context, ref content.TemplateRef) error {
	moves, err := s.History(ctx, ref)
	if err != nil || len(moves) == 0 {
		return err
	}
	last := moves[len(moves)-1]
	if last.Kind != content.MoveRetract || s.cfg.Now().Sub(last.At) < mourning {
		return nil
	}
	return s.deleteVersions(ctx, ref)
}
