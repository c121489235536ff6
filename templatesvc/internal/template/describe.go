package template

import (
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// Description is what a template says of itself beside its files; nil says nothing.
type Description struct{ Text, Platform *string }

func (d Description) check() error {
	var text, platform string
	if d.Text != nil {
		text = *d.Text
	}
	if d.Platform != nil {
		platform = *d.Platform
	}
	return fleet.CheckDescription(text, platform)
}

// Create makes a template without files. AlreadyExists when there is one, Invalid
// when it cannot say that of itself.
func (s *Service) Create(ctx context.Context, ref fleet.TemplateRef, d Description, by Asked) (fleet.TemplateHead, error) {
	if err := d.check(); err != nil {
		return fleet.TemplateHead{}, errs.Wrap("template.Create", err)
	}
	p, err := s.Begin(ctx, "creation of "+ref.String())
	if err != nil {
		return fleet.TemplateHead{}, errs.Wrap("template.Create", err)
	}
	defer p.Close(ctx)
	head, err := p.Commit(ctx, Move{
		Ref: ref, Asked: by.For("create", d), Kind: fleet.MoveEdit, Message: "created", Description: d.Text, Platform: d.Platform,
	})
	return head, errs.Wrap("template.Create", err)
}

// Describe changes what a template says of itself; its files and history stay. NotFound
// when there is no such template, Conflict when its head is not at the revision asked for,
// Invalid when it cannot say that.
func (s *Service) Describe(ctx context.Context, ref fleet.TemplateRef, d Description, by Asked) (fleet.TemplateHead, error) {
	if err := d.check(); err != nil {
		return fleet.TemplateHead{}, errs.Wrap("template.Describe", err)
	}
	by = by.For("describe", d)
	return s.once(ctx, ref, by, func() (fleet.TemplateHead, error) { return s.describe(ctx, ref, d, by) })
}

func (s *Service) describe(ctx context.Context, ref fleet.TemplateRef, d Description, by Asked) (head fleet.TemplateHead, err error) {
	for range tries {
		if head, err = s.existing(ctx, ref); err != nil {
			return head, errs.Wrap("template.Describe", err)
		}
		if err := by.unmoved("template "+ref.String(), head.ModRev); err != nil {
			return head, err
		}
		next := head
		if d.Text != nil {
			next.Description = *d.Text
		}
		if d.Platform != nil {
			next.Platform = *d.Platform
		}
		next.UpdatedAt = s.cfg.Now().UTC()
		var writes []store.Write
		if writes, err = s.remembered(ctx, by, ref, next.Digest); err != nil {
			return head, errs.Wrap("template.Describe", err)
		}
		var rev int64
		writes = append(writes, store.Replace(store.TemplateHeadKey(ref), next, head.ModRev))
		rev, err = s.cfg.Store.Commit(ctx, store.Txn{Writes: writes})
		if err == nil {
			next.SetRev(head.CreateRev, rev)
			return next, nil
		}
		if !errs.Is(err, errs.Conflict) {
			break
		}
	}
	return head, errs.Wrap("template.Describe", err)
}

// Diff tells how to come from one version to another: of the file at a path, or with ""
// of all of them the first; more says that there are others. NotFound when one of the
// versions is not stored here.
func (s *Service) Diff(ctx context.Context, from, to, path string) (changes []fleet.FileChange, more bool, err error) {
	a, err := s.Manifest(ctx, from)
	if err != nil {
		return nil, false, errs.Wrap("template.Diff", err)
	}
	b, err := s.Manifest(ctx, to)
	if err != nil {
		return nil, false, errs.Wrap("template.Diff", err)
	}
	all := fleet.Diff(a, b)
	if path != "" {
		all = slices.DeleteFunc(all, func(c fleet.FileChange) bool { return c.Path != path })
	}
	changes, more = bounded(all, maxChanges)
	return changes, more, nil
}
