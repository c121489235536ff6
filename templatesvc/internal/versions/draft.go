package versions

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// DraftLife is how long an unchanged draft is kept.
const DraftLife = 7 * 24 * time.Hour

// Draft returns an author's staged edits of a template. It returns NotFound when there are
// none.
func (s *Service) Draft(ctx context.Context, ref content.TemplateRef, by Asked) (content.TemplateDraft, error) {
	d, err := store.Get(ctx, s.cfg.Store, keys.TemplateDraft(ref, cmp.Or(by.Owner, by.Author)))
	if errs.Is(err, errs.NotFound) {
		return d, errs.New(errs.NotFound, "there is no draft of %s by %s: stage an edit first", ref, by.Author)
	}
	return d, errs.Wrap("template.Draft", err)
}

// Stage applies a change to an author's draft, or to a new draft of the head. change may be
// called several times. Stage ends the publish. The returned head has only the template's
// name and the draft's digest. It returns NotFound when the template does not exist, and
// Conflict when the draft is not at the requested revision.
func (p *Publish) Stage(ctx context.Context, ref content.TemplateRef, by Asked, change func(head content.TemplateHead, current content.Manifest) (content.Manifest, error)) (content.TemplateHead, error) {
	return p.service.once(ctx, ref, by, func() (content.TemplateHead, error) {
		for range tries {
			d, lost, err := p.stage(ctx, ref, by, change)
			if err == nil || !lost {
				return content.TemplateHead{TemplateRef: ref, Digest: d.Digest}, err
			}
			if done, made, lookErr := p.service.performed(ctx, ref, by); lookErr != nil || made {
				return done, lookErr
			}
		}
		return content.TemplateHead{}, errs.New(errs.Conflict, "the draft of %s has too many concurrent changes: retry", ref)
	})
}

// stage tries once. lost is true when the draft was changed meanwhile.
func (p *Publish) stage(ctx context.Context, ref content.TemplateRef, by Asked, change func(content.TemplateHead, content.Manifest) (content.Manifest, error)) (d content.TemplateDraft, lost bool, err error) {
	head, err := p.service.existing(ctx, ref)
	if err != nil {
		return d, false, errs.Wrap("template.Stage", err)
	}
	d, err = p.service.Draft(ctx, ref, by)
	if errs.Is(err, errs.NotFound) {
		d = content.TemplateDraft{TemplateRef: ref, Owner: by.Owner, Base: head.Digest, Digest: head.Digest}
	} else if err != nil {
		return d, false, err
	}
	if err := by.unmoved("the draft", d.ModRev); err != nil {
		return d, false, err
	}
	current, err := p.service.Manifest(ctx, d.Digest)
	if err != nil {
		return d, false, errs.Wrap("template.Stage", err)
	}
	if current, err = change(head, current); err != nil {
		return d, false, err
	}
	if d.Digest, err = p.Store(ctx, current); err != nil {
		return d, false, err
	}
	d.Author = by.Author
	d.Edits++
	d.UpdatedAt = p.service.cfg.Now().UTC()
	writes, err := p.service.remembered(ctx, by, ref, d.Digest)
	if err != nil {
		return d, false, err
	}
	writes = append(writes, store.Replace(draftKey(d), d, d.ModRev))
	rev, err := p.Finish(ctx, store.Txn{Writes: writes})
	if err != nil {
		return d, errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists), err
	}
	d.SetRev(d.CreateRev, rev)
	return d, false, nil
}

// PublishDraft publishes an author's draft as the head. If the head has moved since the
// draft was started, the two are merged by file; a file that both changed is a Conflict,
// whose message names it. Without a draft, PublishDraft returns the current head. It
// returns NotFound when the template does not exist, and Conflict when the draft is not at
// the requested revision.
func (s *Service) PublishDraft(ctx context.Context, ref content.TemplateRef, by Asked, message string) (content.TemplateHead, error) {
	by = by.For("publish draft", message)
	return s.once(ctx, ref, by, func() (content.TemplateHead, error) { return s.publishDraft(ctx, ref, by, message) })
}

func (s *Service) publishDraft(ctx context.Context, ref content.TemplateRef, by Asked, message string) (head content.TemplateHead, err error) {
	d, err := s.Draft(ctx, ref, by)
	if errs.Is(err, errs.NotFound) {
		if err := by.unmoved("the draft", 0); err != nil {
			return head, err
		}
		return s.Head(ctx, ref)
	}
	if err != nil {
		return head, err
	}
	if err := by.unmoved("the draft", d.ModRev); err != nil {
		return head, err
	}
	staged, err := s.Manifest(ctx, d.Digest)
	if err != nil {
		return head, errs.Wrap("template.PublishDraft", err)
	}
	p, err := s.Begin(ctx, "draft of "+ref.String())
	if err != nil {
		return head, errs.Wrap("template.PublishDraft", err)
	}
	defer p.Close(context.WithoutCancel(ctx))
	if message == "" {
		message = fmt.Sprintf("%d edits", d.Edits)
	}
	by.Revision = 0 // it was the revision of the draft
	head, err = p.commitMove(ctx, Move{
		Ref: ref, Base: d.Base, Manifest: staged, Kind: content.MoveEdit, Message: message, Asked: by,
		Rebase: func(m *Move, head content.TemplateHead, current content.Manifest) error {
			return s.rebaseDraft(ctx, m, head, current, d, staged)
		},
	})
	if err != nil {
		return head, errs.Wrap("template.PublishDraft", err)
	}
	// If this fails, the draft stays. Publishing it again changes nothing.
	return head, errs.Wrap("template.PublishDraft", s.dropDraft(ctx, d))
}

// rebaseDraft merges the staged files with a newer head.
func (s *Service) rebaseDraft(ctx context.Context, m *Move, head content.TemplateHead, current content.Manifest, d content.TemplateDraft, staged content.Manifest) error {
	if head.ModRev == 0 {
		return errs.New(errs.NotFound, "template %s was deleted meanwhile: create it again, and stage the edits again", d.TemplateRef)
	}
	base, err := s.Manifest(ctx, d.Base)
	if err != nil {
		return errs.New(errs.Conflict, "version %s, which the draft was begun from, is gone: drop the draft", d.Base)
	}
	joined, fought := content.Merge3(base, staged, current)
	if len(fought) > 0 {
		return errs.New(errs.Conflict, "the template and its draft were both changed since: %s; drop the draft, or make those files as the template has them", namesOf(fought))
	}
	m.Manifest = joined
	return nil
}

// DropDraft deletes an author's draft. It returns NotFound when there is none, and Conflict
// when the draft is not at the requested revision or changes at the same time.
func (s *Service) DropDraft(ctx context.Context, ref content.TemplateRef, by Asked) error {
	by = by.For("drop draft")
	_, err := s.once(ctx, ref, by, func() (content.TemplateHead, error) {
		d, err := s.Draft(ctx, ref, by)
		if err != nil {
			return content.TemplateHead{}, err
		}
		if err := by.unmoved("the draft", d.ModRev); err != nil {
			return content.TemplateHead{}, err
		}
		remembered, err := s.remembered(ctx, by, ref, "")
		if err != nil {
			return content.TemplateHead{}, err
		}
		return content.TemplateHead{}, s.removeDraft(ctx, d, remembered...)
	})
	return errs.Wrap("template.DropDraft", err)
}

func draftKey(d content.TemplateDraft) keys.Key[content.TemplateDraft] {
	return keys.TemplateDraft(d.TemplateRef, cmp.Or(d.Owner, d.Author))
}

// removeDraft deletes a draft together with further writes. It returns Conflict when the
// draft was changed meanwhile.
func (s *Service) removeDraft(ctx context.Context, d content.TemplateDraft, further ...store.Write) error {
	_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: append(further, store.Remove(draftKey(d), d.ModRev))})
	return err
}

// dropDraft deletes a draft, unless it was changed meanwhile.
func (s *Service) dropDraft(ctx context.Context, d content.TemplateDraft) error {
	if err := s.removeDraft(ctx, d); err != nil && !errs.Is(err, errs.Conflict) {
		return err
	}
	return nil
}

// ExpireDrafts deletes the drafts that have not been changed for DraftLife.
func (s *Service) ExpireDrafts(ctx context.Context) error {
	all, _, err := store.List(ctx, s.cfg.Store, keys.TemplateDrafts())
	if err != nil {
		return errs.Wrap("template.ExpireDrafts", err)
	}
	for _, d := range all {
		if s.cfg.Now().Sub(d.UpdatedAt) < DraftLife {
			continue
		}
		if err := s.dropDraft(ctx, d); err != nil {
			return errs.Wrap("template.ExpireDrafts", err)
		}
	}
	return nil
}
