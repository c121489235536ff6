package template

import (
	"context"
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// Provenance says where a version comes from. Origin is the source's name; Fences are
// what proves that the caller works on it, none for the directory of templates, whose
// own id is Directory.
type Provenance struct {
	Author, Message, Origin, Directory string
	Fences                             []store.Fence
}

// ErrInternal refuses to publish what is internal: whoever may write into a source may not
// change the pictures of users.
var ErrInternal = errs.New(errs.Invalid, "templates of the group %s are Orrery's own, and of no source: take it out of there, or rename the group", fleet.AvatarTemplate.Group)

// PublishedBy reports whether a head is published by the source. Heads from before
// origins were told are the directory's; what is internal is no source's, whatever it says.
func PublishedBy(head fleet.TemplateHead, origin string) bool {
	if head.Internal() {
		return false
	}
	return head.Origin == origin && origin != "" || origin == fleet.DirectoryOrigin && head.Origin == "" && head.SourceDigest != ""
}

// PublishSource makes a source's content the head of its template, unless the source
// has not changed since it was last published: then a head that was rolled back or
// edited stays. p is the publish that the content was stored in; nil when all of it
// was stored before, which is made sure of. What was edited since the source was last
// published is joined with it; where both changed a file, the source wins. moved is
// false when nothing changed.
func (s *Service) PublishSource(ctx context.Context, p *Publish, ref fleet.TemplateRef, m fleet.Manifest, from Provenance) (head fleet.TemplateHead, moved bool, err error) {
	if ref.Internal() {
		return head, false, ErrInternal
	}
	_, digest, err := m.Canonical(fleet.VersionLimits())
	if err != nil {
		return head, false, errs.Wrap("template.PublishSource", err)
	}
	before, err := s.head(ctx, ref)
	if err != nil {
		return head, false, errs.Wrap("template.PublishSource", err)
	}
	if _, err := s.CheckOrigin(ctx, before, from.Origin); err != nil {
		return before, false, err
	}
	if before.SourceDigest == digest && (before.ModRev == 0 || before.Origin == "" || before.Origin == from.Origin) {
		return before, false, nil
	}
	if p == nil {
		if p, err = s.Begin(ctx, "source of "+ref.String()); err != nil {
			return head, false, errs.Wrap("template.PublishSource", err)
		}
		defer p.Close(ctx)
	}
	if _, err := p.Store(ctx, m); err != nil { // later edits are told from it
		return head, false, errs.Wrap("template.PublishSource", err)
	}
	move := Move{
		Ref: ref, Base: before.Digest, Asked: Asked{Author: from.Author}, Kind: fleet.MoveSource, Fences: from.Fences,
		SourceDigest: &digest, Origin: &from.Origin, Directory: &from.Directory,
		Rebase: func(move *Move, head fleet.TemplateHead, _ fleet.Manifest) (err error) {
			if _, err := s.CheckOrigin(ctx, head, from.Origin); err != nil {
				return err
			}
			var joined string
			move.Manifest, joined, err = s.joinEdits(ctx, head, m)
			move.Message = from.Message + joined
			return err
		},
	}
	if err := move.Rebase(&move, before, m); err != nil {
		return head, false, errs.Wrap("template.PublishSource", err)
	}
	head, err = p.Commit(ctx, move)
	return head, err == nil && head.ModRev != before.ModRev, errs.Wrap("template.PublishSource", err)
}

// joinEdits is the source's new content with the edits made since its last one. Variables
// are defined through the API alone: no source says anything of them, and they stay.
func (s *Service) joinEdits(ctx context.Context, head fleet.TemplateHead, theirs fleet.Manifest) (m fleet.Manifest, message string, err error) {
	edited, err := s.edited(ctx, head)
	if err != nil || !edited {
		theirs.Variables = head.Variables
		return theirs, "", err
	}
	base, err := s.Manifest(ctx, head.SourceDigest)
	if err != nil {
		return theirs, "", err
	}
	ours, err := s.Manifest(ctx, head.Digest)
	if err != nil {
		return theirs, "", err
	}
	m, conflicts := fleet.Merge3(base, ours, theirs)
	message = ", joined with edits"
	if len(conflicts) > 0 {
		message += fmt.Sprintf("; the source won at %s", namesOf(conflicts))
	}
	return m, message, nil
}

// edited reports whether a head was edited since its source was last published. A
// rollback is no edit: it ends with the source's next change.
func (s *Service) edited(ctx context.Context, head fleet.TemplateHead) (bool, error) {
	if head.Move == 0 || head.SourceDigest == "" || head.SourceDigest == head.Digest {
		return false, nil
	}
	last, err := store.Get(ctx, s.cfg.Store, store.TemplateMoveKey(head.TemplateRef, head.Move))
	if err != nil {
		return false, err
	}
	return last.Kind != fleet.MoveRollback, nil
}

// namesOf lists the first few of many paths.
func namesOf(paths []string) string {
	const shown = 5
	text := ""
	for i, p := range paths {
		if i == shown {
			return text + fmt.Sprintf(" and %d more", len(paths)-shown)
		}
		if i > 0 {
			text += ", "
		}
		text += p
	}
	return text
}

// Published are the heads that a source publishes.
func (s *Service) Published(ctx context.Context, origin string) ([]fleet.TemplateHead, error) {
	heads, _, err := store.List(ctx, s.cfg.Store, store.TemplateHeads())
	if err != nil {
		return nil, errs.Wrap("template.Published", err)
	}
	return slices.DeleteFunc(heads, func(h fleet.TemplateHead) bool { return !PublishedBy(h, origin) }), nil
}

// Retract removes a template's head because its source has it no more; its versions
// stay. What another source publishes, or nobody does, is left alone.
func (s *Service) Retract(ctx context.Context, ref fleet.TemplateRef, origin string, fences ...store.Fence) error {
	head, err := s.head(ctx, ref)
	if err != nil || head.ModRev == 0 || !PublishedBy(head, origin) {
		return errs.Wrap("template.Retract", err)
	}
	return s.RetractHead(ctx, head, fences...)
}

// RetractHead is Retract of the head as it was when the caller decided. Conflict when
// it has moved since.
func (s *Service) RetractHead(ctx context.Context, head fleet.TemplateHead, fences ...store.Fence) error {
	err := s.retract(ctx, head, store.Txn{Fences: fences}, fleet.TemplateMove{
		TemplateRef: head.TemplateRef, Kind: fleet.MoveRetract, Author: "source", Message: "its source has it no more",
	})
	if err == nil {
		s.cfg.Log.Info("template removed, its source has it no more", "template", head.TemplateRef.String(), "source", head.Origin)
	}
	return errs.Wrap("template.Retract", err)
}

// retract removes a head, which its history remembers, in one transaction with what t has.
func (s *Service) retract(ctx context.Context, head fleet.TemplateHead, t store.Txn, m fleet.TemplateMove) error {
	var none fleet.TemplateHead
	writes, err := s.moveWrites(ctx, &none, head, m)
	if err != nil {
		return err
	}
	key := store.TemplateGoneKey(m.TemplateRef)
	before, err := store.Get(ctx, s.cfg.Store, key) // it may have been removed before, and made anew
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	t.Writes = slices.Concat(t.Writes, writes, []store.Write{
		store.Remove(store.TemplateHeadKey(m.TemplateRef), head.ModRev),
		store.Replace(key, fleet.TemplateGone{TemplateRef: m.TemplateRef, At: s.cfg.Now().UTC()}, before.ModRev),
	})
	_, err = s.cfg.Store.Commit(ctx, t)
	return err
}
