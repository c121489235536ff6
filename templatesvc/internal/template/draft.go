package template

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// DraftLife is how long a draft that nobody touches is kept.
const DraftLife = 7 * 24 * time.Hour

// Draft is what an author has staged for a template. NotFound when there is none.
func (s *Service) Draft(ctx context.Context, ref fleet.TemplateRef, by Asked) (fleet.TemplateDraft, error) {
	d, err := store.Get(ctx, s.cfg.Store, store.TemplateDraftKey(ref, cmp.Or(by.Owner, by.Author)))
	if errs.Is(err, errs.NotFound) {
		return d, errs.New(errs.NotFound, "there is no draft of %s by %s: stage an edit first", ref, by.Author)
	}
	return d, errs.Wrap("template.Draft", err)
}

// Stage puts what change makes of an author's draft, or of the head where there is none,
// in the draft's place. change may be called again. NotFound when the template does not
// exist, Conflict when the draft is not at the revision asked for. The publish ends with
// it. What is returned as a head has the draft's content: nothing else is known of it.
func (p *Publish) Stage(ctx context.Context, ref fleet.TemplateRef, by Asked, change func(head fleet.TemplateHead, current fleet.Manifest) (fleet.Manifest, error)) (fleet.TemplateHead, error) {
	return p.service.once(ctx, ref, by, func() (fleet.TemplateHead, error) {
		for range tries {
			d, lost, err := p.stage(ctx, ref, by, change)
			if err == nil || !lost {
				return fleet.TemplateHead{TemplateRef: ref, Digest: d.Digest}, err
			}
			if done, made, lookErr := p.service.performed(ctx, ref, by); lookErr != nil || made {
				return done, lookErr
			}
		}
		return fleet.TemplateHead{}, errs.New(errs.Conflict, "the draft of %s is being changed all the time: try again", ref)
	})
}

// stage tries once. lost says that the draft was changed meanwhile.
func (p *Publish) stage(ctx context.Context, ref fleet.TemplateRef, by Asked, change func(fleet.TemplateHead, fleet.Manifest) (fleet.Manifest, error)) (d fleet.TemplateDraft, lost bool, err error) {
	head, err := p.service.existing(ctx, ref)
	if err != nil {
		return d, false, errs.Wrap("template.Stage", err)
	}
	d, err = p.service.Draft(ctx, ref, by)
	if errs.Is(err, errs.NotFound) {
		d = fleet.TemplateDraft{TemplateRef: ref, Owner: by.Owner, Base: head.Digest, Digest: head.Digest}
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

// PublishDraft makes an author's draft the head. When the head moved meanwhile the two are
// joined by file; a file that both changed is a Conflict that names it. Without a draft the
// head is returned as it is. NotFound when the template does not exist, Conflict when the
// draft is not at the revision asked for.
func (s *Service) PublishDraft(ctx context.Context, ref fleet.TemplateRef, by Asked, message string) (fleet.TemplateHead, error) {
	by = by.For("publish draft", message)
	return s.once(ctx, ref, by, func() (fleet.TemplateHead, error) { return s.publishDraft(ctx, ref, by, message) })
}

func (s *Service) publishDraft(ctx context.Context, ref fleet.TemplateRef, by Asked, message string) (head fleet.TemplateHead, err error) {
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
	by.Revision = 0 // it was the draft's
	head, err = p.commitMove(ctx, Move{
		Ref: ref, Base: d.Base, Manifest: staged, Kind: fleet.MoveEdit, Message: message, Asked: by,
		Rebase: func(m *Move, head fleet.TemplateHead, current fleet.Manifest) error {
			return s.rebaseDraft(ctx, m, head, current, d, staged)
		},
	})
	if err != nil {
		return head, errs.Wrap("template.PublishDraft", err)
	}
	// A draft that stays because this fails changes nothing when it is published again.
	return head, errs.Wrap("template.PublishDraft", s.dropDraft(ctx, d))
}

// rebaseDraft joins what was staged with what the head has become.
func (s *Service) rebaseDraft(ctx context.Context, m *Move, head fleet.TemplateHead, current fleet.Manifest, d fleet.TemplateDraft, staged fleet.Manifest) error {
	if head.ModRev == 0 {
		return errs.New(errs.NotFound, "template %s was deleted meanwhile: make it anew, and stage the edits again", d.TemplateRef)
	}
	base, err := s.Manifest(ctx, d.Base)
	if err != nil {
		return errs.New(errs.Conflict, "version %s, which the draft was begun from, is gone: drop the draft", d.Base)
	}
	joined, fought := fleet.Merge3(base, staged, current)
	if len(fought) > 0 {
		return errs.New(errs.Conflict, "the template and its draft were both changed since: %s; drop the draft, or make those files as the template has them", namesOf(fought))
	}
	m.Manifest = joined
	return nil
}

// DropDraft forgets what an author has staged. NotFound when there is nothing, Conflict
// when it is not at the revision asked for, or was changed just now.
func (s *Service) DropDraft(ctx context.Context, ref fleet.TemplateRef, by Asked) error {
	by = by.For("drop draft")
	_, err := s.once(ctx, ref, by, func() (fleet.TemplateHead, error) {
		d, err := s.Draft(ctx, ref, by)
		if err != nil {
			return fleet.TemplateHead{}, err
		}
		if err := by.unmoved("the draft", d.ModRev); err != nil {
			return fleet.TemplateHead{}, err
		}
		remembered, err := s.remembered(ctx, by, ref, "")
		if err != nil {
			return fleet.TemplateHead{}, err
		}
		return fleet.TemplateHead{}, s.removeDraft(ctx, d, remembered...)
	})
	return errs.Wrap("template.DropDraft", err)
}

func draftKey(d fleet.TemplateDraft) store.Key[fleet.TemplateDraft] {
	return store.TemplateDraftKey(d.TemplateRef, cmp.Or(d.Owner, d.Author))
}

// removeDraft removes a draft and commits further writes with it. Conflict when it was
// changed meanwhile.
func (s *Service) removeDraft(ctx context.Context, d fleet.TemplateDraft, further ...store.Write) error {
	_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: append(further, store.Remove(draftKey(d), d.ModRev))})
	return err
}

// dropDraft removes a draft, unless it was changed meanwhile: then it stays.
func (s *Service) dropDraft(ctx context.Context, d fleet.TemplateDraft) error {
	if err := s.removeDraft(ctx, d); err != nil && !errs.Is(err, errs.Conflict) {
		return err
	}
	return nil
}

// ExpireDrafts forgets drafts that nobody has touched for DraftLife.
func (s *Service) ExpireDrafts(ctx context.Context) error {
	all, _, err := store.List(ctx, s.cfg.Store, store.TemplateDrafts())
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
