package template

import (
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// maxMoves is how many moves of a template are remembered.
const maxMoves = 1000

// History are the moves of a template's head, oldest first; of one that was deleted too.
func (s *Service) History(ctx context.Context, ref fleet.TemplateRef) ([]fleet.TemplateMove, error) {
	moves, _, err := store.List(ctx, s.cfg.Store, store.TemplateMoves(ref))
	return moves, errs.Wrap("template.History", err)
}

// moveWrites number the move from head to next and remember it, in place of the oldest
// one when there are too many. What belongs to the move is written into next.
func (s *Service) moveWrites(ctx context.Context, next *fleet.TemplateHead, head fleet.TemplateHead, m fleet.TemplateMove) ([]store.Write, error) {
	last := head.Move
	if last == 0 { // deleted before, or made by a templatesvc that counted no moves
		moves, err := s.History(ctx, m.TemplateRef)
		if err != nil {
			return nil, err
		}
		if len(moves) > 0 {
			last = moves[len(moves)-1].Number
		}
	}
	m.Number, m.At = last+1, s.cfg.Now().UTC()
	m.Digest, m.Previous = next.Digest, head.Digest
	next.Move, next.Previous, next.UpdatedAt = m.Number, m.Previous, m.At
	writes := []store.Write{store.Create(store.TemplateMoveKey(m.TemplateRef, m.Number), m)}
	if m.Number <= maxMoves {
		return writes, nil
	}
	oldest := store.TemplateMoveKey(m.TemplateRef, m.Number-maxMoves)
	switch old, err := store.Get(ctx, s.cfg.Store, oldest); {
	case err == nil:
		writes = append(writes, store.Remove(oldest, old.ModRev))
	case !errs.Is(err, errs.NotFound):
		return nil, errs.Wrap("template.move", err)
	}
	return writes, nil
}

// Rollback moves the head to an older version: the one named by digest, or the one
// before when digest is empty. The source stays as it is and is not published again
// until it changes. NotFound when template or version do not exist, Conflict when
// nothing was before, or the head moved meanwhile or is not at the revision asked for,
// Denied when a definition is another there whose value by is not shown.
func (s *Service) Rollback(ctx context.Context, ref fleet.TemplateRef, digest string, by Asked) (fleet.TemplateHead, error) {
	by = by.For("rollback", digest)
	return s.once(ctx, ref, by, func() (fleet.TemplateHead, error) { return s.rollback(ctx, ref, digest, by) })
}

func (s *Service) rollback(ctx context.Context, ref fleet.TemplateRef, digest string, by Asked) (fleet.TemplateHead, error) {
	head, err := s.existing(ctx, ref)
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	if err := by.unmoved("template "+ref.String(), head.ModRev); err != nil {
		return head, err
	}
	if digest == "" {
		if digest, err = s.previous(ctx, head); err != nil {
			return head, errs.Wrap("template.Rollback", err)
		}
	}
	key := store.TemplateVersionKey(ref, digest)
	version, err := store.Get(ctx, s.cfg.Store, key)
	if errs.Is(err, errs.NotFound) {
		return head, errs.New(errs.NotFound, "template %s has no version %s: list its versions", ref, digest)
	}
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	if digest == head.Digest {
		return head, nil
	}
	m, err := s.Manifest(ctx, digest)
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	if err := fleet.KeepsDefinitions(head.Variables, m.Variables, by.Shown); err != nil {
		return head, err
	}
	next := head
	next.Digest, next.SizeBytes, next.Files, next.Variables = digest, version.SizeBytes, version.Files, m.Variables
	writes, err := s.moveWrites(ctx, &next, head, fleet.TemplateMove{TemplateRef: ref, Kind: fleet.MoveRollback, Author: by.Author})
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	remembered, err := s.remembered(ctx, by, ref, digest)
	if err != nil {
		return head, err
	}
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Exists(key)},
		Writes: slices.Concat(writes, remembered, []store.Write{store.Replace(store.TemplateHeadKey(ref), next, head.ModRev)}),
	})
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	next.SetRev(head.CreateRev, rev)
	s.cfg.Log.Info("template rolled back", "template", ref.String(), "from", head.Digest, "to", digest, "author", by.Author)
	return next, nil
}

// previous is the version before the head: what one would come to by undoing moves.
func (s *Service) previous(ctx context.Context, head fleet.TemplateHead) (string, error) {
	moves, err := s.History(ctx, head.TemplateRef)
	if err != nil {
		return "", err
	}
	before := fleet.PreviousVersion(moves)
	if len(moves) == 0 { // published by a templatesvc that remembered no moves
		v, err := store.Get(ctx, s.cfg.Store, store.TemplateVersionKey(head.TemplateRef, head.Digest))
		if err != nil {
			return "", err
		}
		before = v.Parent
	}
	if before == "" {
		return "", errs.New(errs.Conflict, "template %s has no version before %s: name one of its versions", head.TemplateRef, head.Digest)
	}
	return before, nil
}
