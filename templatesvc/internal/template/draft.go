package template

import (
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
func (s *Service) Draft(ctx context.Context, ref fleet.TemplateRef, author string) (fleet.TemplateDraft, error) {
	d, err := store.Get(ctx, s.cfg.Store, store.TemplateDraftKey(ref, author))
	if errs.Is(err, errs.NotFound) {
		return d, errs.New(errs.NotFound, "there is no draft of %s by %s", ref, author)
	}
	return d, errs.Wrap("template.Draft", err)
}

// Stage puts what change makes of an author's draft, or of the head where there is none,
// in the draft's place. change may be called again. NotFound when the template does not
// exist. The publish ends with it.
func (p *Publish) Stage(ctx context.Context, ref fleet.TemplateRef, author string, change func(head fleet.TemplateHead, current fleet.Manifest) (fleet.Manifest, error)) (fleet.TemplateDraft, error) {
	for range tries {
		d, lost, err := p.stage(ctx, ref, author, change)
		if err == nil || !lost {
			return d, err
		}
	}
	return fleet.TemplateDraft{}, errs.New(errs.Conflict, "the draft of %s is being changed all the time: try again", ref)
}

// stage tries once. lost says that the draft was changed meanwhile.
func (p *Publish) stage(ctx context.Context, ref fleet.TemplateRef, author string, change func(fleet.TemplateHead, fleet.Manifest) (fleet.Manifest, error)) (d fleet.TemplateDraft, lost bool, err error) {
	head, err := p.service.existing(ctx, ref)
	if err != nil {
		return d, false, errs.Wrap("template.Stage", err)
	}
	d, err = p.service.Draft(ctx, ref, author)
	if errs.Is(err, errs.NotFound) {
		d = fleet.TemplateDraft{TemplateRef: ref, Author: author, Base: head.Digest, Digest: head.Digest}
	} else if err != nil {
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
	d.Edits++
	d.UpdatedAt = p.service.cfg.Now().UTC()
	rev, err := p.Finish(ctx, store.Txn{Writes: []store.Write{store.Replace(store.TemplateDraftKey(ref, author), d, d.ModRev)}})
	if err != nil {
		return d, errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists), err
	}
	d.SetRev(d.CreateRev, rev)
	return d, false, nil
}

// PublishDraft makes an author's draft the head. When the head moved meanwhile the two are
// joined by file; a file that both changed is a Conflict that names it. Without a draft the
// head is returned as it is. NotFound when the template does not exist.
func (s *Service) PublishDraft(ctx context.Context, ref fleet.TemplateRef, author, message string) (head fleet.TemplateHead, err error) {
	d, err := s.Draft(ctx, ref, author)
	if errs.Is(err, errs.NotFound) {
		return s.Head(ctx, ref)
	}
	if err != nil {
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
	head, err = p.Commit(ctx, Move{
		Ref: ref, Base: d.Base, Manifest: staged, Kind: fleet.MoveEdit, Author: author, Message: message,
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
		return errs.New(errs.NotFound, "template %s does not exist any more", d.TemplateRef)
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

// DropDraft forgets what an author has staged. NotFound when there is nothing.
func (s *Service) DropDraft(ctx context.Context, ref fleet.TemplateRef, author string) error {
	d, err := s.Draft(ctx, ref, author)
	if err != nil {
		return err
	}
	return errs.Wrap("template.DropDraft", s.dropDraft(ctx, d))
}

// dropDraft removes a draft, unless it was changed meanwhile: then it stays.
func (s *Service) dropDraft(ctx context.Context, d fleet.TemplateDraft) error {
	_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(store.TemplateDraftKey(d.TemplateRef, d.Author), d.ModRev)}})
	if errs.Is(err, errs.Conflict) {
		return nil
	}
	return err
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
