package template

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// mourning is how long versions and history of a template stay that was removed, or whose
// source has it no more: it may come back.
const mourning = 7 * 24 * time.Hour

// keepPictures is how many versions stay of the template with users' pictures: each upload
// makes one, nobody rolls them back, and what somebody took back is to go.
const keepPictures = 1

// Retire deletes what nobody needs any more: of each template the versions beyond the
// keep youngest, 0 for none, of the one with users' pictures those beyond keepPictures,
// whatever keep is, and all of templates that have had no head for seven days, with their
// history and drafts. Heads and what is in use stay. Deletions that were cut off are ended
// first.
func (s *Service) Retire(ctx context.Context, keep int) error {
	if err := s.SettleDoomed(ctx); err != nil {
		return err
	}
	versions, rev, err := store.List(ctx, s.cfg.Store, store.AllTemplateVersions())
	if err != nil {
		return errs.Wrap("template.Retire", err)
	}
	heads := map[fleet.TemplateRef]fleet.TemplateHead{}
	if err := eachAt(ctx, s, store.TemplateHeads(), rev, func(h fleet.TemplateHead) { heads[h.TemplateRef] = h }); err != nil {
		return errs.Wrap("template.Retire", err)
	}
	byRef := map[fleet.TemplateRef][]fleet.TemplateVersion{}
	for _, v := range versions {
		byRef[v.TemplateRef] = append(byRef[v.TemplateRef], v)
	}
	var old []fleet.TemplateVersion
	for _, ref := range slices.SortedFunc(maps.Keys(byRef), func(a, b fleet.TemplateRef) int { return cmp.Compare(a.String(), b.String()) }) {
		if head, alive := heads[ref]; alive {
			most := keep
			if ref == fleet.AvatarTemplate {
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

// surplus are the oldest versions beyond keep, but the head.
func surplus(head fleet.TemplateHead, versions []fleet.TemplateVersion, keep int) []fleet.TemplateVersion {
	if keep <= 0 || len(versions) <= keep {
		return nil
	}
	slices.SortFunc(versions, func(a, b fleet.TemplateVersion) int { return a.CreatedAt.Compare(b.CreatedAt) })
	old := versions[:len(versions)-keep]
	return slices.DeleteFunc(slices.Clone(old), func(v fleet.TemplateVersion) bool { return v.Digest == head.Digest })
}

// bury removes what is left of templates that went long ago.
func (s *Service) bury(ctx context.Context) error {
	gone, _, err := store.List(ctx, s.cfg.Store, store.TemplatesGone())
	if err != nil {
		return err
	}
	for _, g := range gone {
		if err := s.buryOne(ctx, g); err != nil && !errs.Is(err, errs.Conflict) { // it was made anew meanwhile
			return err
		}
	}
	return nil
}

// removeAtOnce bounds the removals of one transaction.
const removeAtOnce = 100

// buryOne removes history and drafts of a template whose versions are gone, oldest moves
// first: what is left numbers on.
func (s *Service) buryOne(ctx context.Context, g fleet.TemplateGone) error {
	record := store.Remove(store.TemplateGoneKey(g.TemplateRef), g.ModRev)
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
	versions, rev, err := store.List(ctx, s.cfg.Store, store.TemplateVersions(g.TemplateRef))
	if err != nil || len(versions) > 0 {
		return err
	}
	doomed, err := store.ListAt(ctx, s.cfg.Store, store.TemplatesDoomedOf(g.TemplateRef), rev)
	if err != nil || len(doomed) > 0 { // they may be versions again in a moment
		return err
	}
	moves, err := s.History(ctx, g.TemplateRef)
	if err != nil {
		return err
	}
	drafts, _, err := store.List(ctx, s.cfg.Store, store.TemplateDraftsOf(g.TemplateRef))
	if err != nil {
		return err
	}
	var writes []store.Write
	for _, d := range drafts {
		writes = append(writes, store.Remove(store.TemplateDraftKey(d.TemplateRef, d.Author), d.ModRev))
	}
	for _, m := range moves {
		writes = append(writes, store.Remove(store.TemplateMoveKey(m.TemplateRef, m.Number), m.ModRev))
	}
	for part := range slices.Chunk(append(writes, record), removeAtOnce) {
		still := []store.Guard{store.Missing(store.TemplateHeadKey(g.TemplateRef))}
		if _, err := s.cfg.Store.Commit(ctx, store.Txn{Guards: still, Writes: part}); err != nil {
			return err
		}
	}
	return nil
}

// retireGone deletes the versions of a template whose head went long ago. One without
// a history is left alone: nobody knows since when.
func (s *Service) retireGone(ctx context.Context, ref fleet.TemplateRef) error {
	moves, err := s.History(ctx, ref)
	if err != nil || len(moves) == 0 {
		return err
	}
	last := moves[len(moves)-1]
	if last.Kind != fleet.MoveRetract || s.cfg.Now().Sub(last.At) < mourning {
		return nil
	}
	return s.deleteVersions(ctx, ref)
}
