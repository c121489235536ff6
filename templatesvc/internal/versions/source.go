package versions

import (
	"context"
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Provenance says where a version comes from. Origin is the source's name. Fences prove
// that the caller owns the source; the template directory has none. Directory is the ID of
// the template directory.
type Provenance struct {
	Author, Message, Origin, Directory string
	Fences                             []store.Fence
}

// ErrInternal refuses to publish internal templates from a source, so that write access to
// a source does not allow to change users' pictures.
var ErrInternal = errs.New(errs.Invalid, "templates of the group %s are Orrery's own, and of no source: take it out of there, or rename the group", content.AvatarTemplate.Group)

// PublishedBy reports whether the source publishes the head. Old heads without an Origin
// count as the template directory's. Internal templates belong to no source.
func PublishedBy(head content.TemplateHead, origin string) bool {
	if head.Internal() {
		return false
	}
	return head.Origin == origin && origin != "" || origin == content.DirectoryOrigin && head.Origin == "" && head.SourceDigest != ""
}

// PublishSource makes a source's content the head of its template. If the source has not
// changed since it was last published, the head stays, even if it was rolled back or
// edited. Edits since the last publish are merged with the new content; where both changed
// a file, the source wins. p is the publish in which the content was stored, or nil if all
// of it was stored before. moved is false when nothing changed.
func (s *Service) PublishSource(ctx context.Context, p *Publish, ref content.TemplateRef, m content.Manifest, from Provenance) (head content.TemplateHead, moved bool, err error) {
	if ref.Internal() {
		return head, false, ErrInternal
	}
	_, digest, err := m.Canonical(content.VersionLimits())
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
	if _, err := p.Store(ctx, m); err != nil { // later edits are computed relative to it
		return head, false, errs.Wrap("template.PublishSource", err)
	}
	move := Move{
		Ref: ref, Base: before.Digest, Asked: Asked{Author: from.Author}, Kind: content.MoveSource, Fences: from.Fences,
		SourceDigest: &digest, Origin: &from.Origin, Directory: &from.Directory,
		Rebase: func(move *Move, head content.TemplateHead, _ content.Manifest) (err error) {
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

// joinEdits merges the source's new content with the edits since its last publish. Variable
// definitions stay, because only the API sets them.
func (s *Service) joinEdits(ctx context.Context, head content.TemplateHead, theirs content.Manifest) (m content.Manifest, message string, err error) {
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
	m, conflicts := content.Merge3(base, ours, theirs)
	message = ", joined with edits"
	if len(conflicts) > 0 {
		message += fmt.Sprintf("; the source won at %s", namesOf(conflicts))
	}
	return m, message, nil
}

// edited reports whether a head was edited since its source was last published. A rollback
// does not count: the source's next change replaces it.
func (s *Service) edited(ctx context.Context, head content.TemplateHead) (bool, error) {
	if head.Move == 0 || head.SourceDigest == "" || head.SourceDigest == head.Digest {
		return false, nil
	}
	last, err := store.Get(ctx, s.cfg.Store, keys.TemplateMove(head.TemplateRef, head.Move))
	if err != nil {
		return false, err
	}
	return last.Kind != content.MoveRollback, nil
}

// namesOf lists the first five paths and the number of the others.
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

// Published returns the heads that a source publishes.
func (s *Service) Published(ctx context.Context, origin string) ([]content.TemplateHead, error) {
	heads, _, err := store.List(ctx, s.cfg.Store, keys.TemplateHeads())
	if err != nil {
		return nil, errs.Wrap("template.Published", err)
	}
	return slices.DeleteFunc(heads, func(h content.TemplateHead) bool { return !PublishedBy(h, origin) }), nil
}

// Retract removes a template's head because its source no longer holds it. The versions
// stay. It ignores heads that the source does not publish.
func (s *Service) Retract(ctx context.Context, ref content.TemplateRef, origin string, fences ...store.Fence) error {
	head, err := s.head(ctx, ref)
	if err != nil || head.ModRev == 0 || !PublishedBy(head, origin) {
		return errs.Wrap("template.Retract", err)
	}
	return s.RetractHead(ctx, head, fences...)
}

// RetractHead is like Retract, but returns Conflict if the head has moved since the caller
// read it.
func (s *Service) RetractHead(ctx context.Context, head content.TemplateHead, fences ...store.Fence) error {
	err := s.retract(ctx, head, store.Txn{Fences: fences}, content.TemplateMove{
		TemplateRef: head.TemplateRef, Kind: content.MoveRetract, Author: "source", Message: "its source no longer has it",
	})
	if err == nil {
		s.cfg.Log.Info("template removed, its source no longer has it", "template", head.TemplateRef.String(), "source", head.Origin)
	}
	return errs.Wrap("template.Retract", err)
}

// retract removes a head and adds the removal to its history, in one transaction with t.
func (s *Service) retract(ctx context.Context, head content.TemplateHead, t store.Txn, m content.TemplateMove) error {
	var none content.TemplateHead
	writes, err := s.moveWrites(ctx, &none, head, m)
	if err != nil {
		return err
	}
	key := keys.TemplateGone(m.TemplateRef)
	before, err := store.Get(ctx, s.cfg.Store, key) // from an earlier removal, if the template was created again
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	t.Writes = slices.Concat(t.Writes, writes, []store.Write{
		store.Remove(keys.TemplateHead(m.TemplateRef), head.ModRev),
		store.Replace(key, content.TemplateGone{TemplateRef: m.TemplateRef, At: s.cfg.Now().UTC()}, before.ModRev),
	})
	_, err = s.cfg.Store.Commit(ctx, t)
	return err
}
