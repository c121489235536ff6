package versions

import (
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// maxMoves is how many moves are kept per template.
const maxMoves = 1000

// History returns the moves of a template's head, oldest first. It also works for deleted
// templates.
func (s *Service) History(ctx context.Context, ref content.TemplateRef) ([]content.TemplateMove, error) {
	moves, _, err := store.List(ctx, s.cfg.Store, keys.TemplateMoves(ref))
	return moves, errs.Wrap("template.History", err)
}

// moveWrites returns the writes that add a move from head to next to the history, and
// remove the oldest move beyond maxMoves. It sets the fields of next that describe the
// move.
func (s *Service) moveWrites(ctx context.Context, next *content.TemplateHead, head content.TemplateHead, m content.TemplateMove) ([]store.Write, error) {
	last := head.Move
	if last == 0 { // deleted before, or written by a templatesvc that did not count moves
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
	writes := []store.Write{store.Create(keys.TemplateMove(m.TemplateRef, m.Number), m)}
	if m.Number <= maxMoves {
		return writes, nil
	}
	oldest := keys.TemplateMove(m.TemplateRef, m.Number-maxMoves)
	switch old, err := store.Get(ctx, s.cfg.Store, oldest); {
	case err == nil:
		writes = append(writes, store.Remove(oldest, old.ModRev))
	case !errs.Is(err, errs.NotFound):
		return nil, errs.Wrap("template.move", err)
	}
	return writes, nil
}

// Rollback moves the head to an older version: that of digest, or the previous one if
// digest is "". The source is not published again until it changes. Rollback returns
// NotFound when the template or the version does not exist. It returns Conflict when there
// is no previous version, or when the head moves meanwhile or is not at the requested
// revision. It returns Denied when it would change a variable definition whose value is
// hidden from the caller.
func (s *Service) Rollback(ctx context.Context, ref content.TemplateRef, digest string, by Asked) (content.TemplateHead, error) {
	by = by.For("rollback", digest)
	return s.once(ctx, ref, by, func() (content.TemplateHead, error) { return s.rollback(ctx, ref, digest, by) })
}

func (s *Service) rollback(ctx context.Context, ref content.TemplateRef, digest string, by Asked) (content.TemplateHead, error) {
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
	key := keys.TemplateVersion(ref, digest)
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
	if err := compose.KeepsDefinitions(head.Variables, m.Variables, by.Shown); err != nil {
		return head, err
	}
	next := head
	next.Digest, next.SizeBytes, next.Files, next.Variables = digest, version.SizeBytes, version.Files, m.Variables
	writes, err := s.moveWrites(ctx, &next, head, content.TemplateMove{TemplateRef: ref, Kind: content.MoveRollback, Author: by.Author})
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	remembered, err := s.remembered(ctx, by, ref, digest)
	if err != nil {
		return head, err
	}
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Exists(key)},
		Writes: slices.Concat(writes, remembered, []store.Write{store.Replace(keys.TemplateHead(ref), next, head.ModRev)}),
	})
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	next.SetRev(head.CreateRev, rev)
	s.cfg.Log.Info("template rolled back", "template", ref.String(), "from", head.Digest, "to", digest, "author", by.Author)
	return next, nil
}

// previous returns the version before the head, as if the latest move were undone.
func (s *Service) previous(ctx context.Context, head content.TemplateHead) (string, error) {
	moves, err := s.History(ctx, head.TemplateRef)
	if err != nil {
		return "", err
	}
	before := content.PreviousVersion(moves)
	if len(moves) == 0 { // published by a templatesvc that kept no history
		v, err := store.Get(ctx, s.cfg.Store, keys.TemplateVersion(head.TemplateRef, head.Digest))
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
