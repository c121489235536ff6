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

// mourning is how long the versions of a template stay whose source has it no more: it
// may come back.
const mourning = 7 * 24 * time.Hour

// Retire deletes what nobody needs any more: of each template the versions beyond the
// keep youngest, 0 for none, and all of those that have had no head for seven days.
// Heads and what is in use stay. Deletions that were cut off are ended first.
func (s *Service) Retire(ctx context.Context, keep int) error {
	if err := s.SettleDoomed(ctx); err != nil {
		return err
	}
	if err := s.ForgetOperations(ctx); err != nil {
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
	for _, ref := range slices.SortedFunc(maps.Keys(byRef), func(a, b fleet.TemplateRef) int { return cmp.Compare(a.String(), b.String()) }) {
		if _, alive := heads[ref]; alive {
			err = s.retireOld(ctx, heads[ref], byRef[ref], keep)
		} else {
			err = s.retireGone(ctx, ref)
		}
		if err != nil {
			return errs.Wrap("template.Retire", err)
		}
	}
	return nil
}

// retireOld deletes the oldest versions beyond keep.
func (s *Service) retireOld(ctx context.Context, head fleet.TemplateHead, versions []fleet.TemplateVersion, keep int) error {
	if keep <= 0 || len(versions) <= keep {
		return nil
	}
	slices.SortFunc(versions, func(a, b fleet.TemplateVersion) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for _, v := range versions[:len(versions)-keep] {
		if v.Digest == head.Digest {
			continue
		}
		if err := s.DeleteVersion(ctx, v.TemplateRef, v.Digest, Asked{}); err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.NotFound) {
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
