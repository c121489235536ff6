package versions

import (
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Description is the description and the platform of a template. Nil fields stay unchanged.
type Description struct{ Text, Platform *string }

func (d Description) check() error {
	var text, platform string
	if d.Text != nil {
		text = *d.Text
	}
	if d.Platform != nil {
		platform = *d.Platform
	}
	return content.CheckDescription(text, platform)
}

// Create creates a template without files. It returns AlreadyExists when the template
// exists, and Invalid when the description is not valid.
func (s *Service) Create(ctx context.Context, ref content.TemplateRef, d Description, by Asked) (content.TemplateHead, error) {
	if err := d.check(); err != nil {
		return content.TemplateHead{}, errs.Wrap("template.Create", err)
	}
	p, err := s.Begin(ctx, "creation of "+ref.String())
	if err != nil {
		return content.TemplateHead{}, errs.Wrap("template.Create", err)
	}
	defer p.Close(ctx)
	head, err := p.Commit(ctx, Move{
		Ref: ref, Asked: by.For("create", d), Kind: content.MoveEdit, Message: "created", Description: d.Text, Platform: d.Platform,
	})
	return head, errs.Wrap("template.Create", err)
}

// Describe changes a template's description; its files and history stay. It returns
// NotFound when the template does not exist, Conflict when its head is not at the requested
// revision, and Invalid when the description is not valid.
func (s *Service) Describe(ctx context.Context, ref content.TemplateRef, d Description, by Asked) (content.TemplateHead, error) {
	if err := d.check(); err != nil {
		return content.TemplateHead{}, errs.Wrap("template.Describe", err)
	}
	by = by.For("describe", d)
	return s.once(ctx, ref, by, func() (content.TemplateHead, error) { return s.describe(ctx, ref, d, by) })
}

func (s *Service) describe(ctx context.Context, ref content.TemplateRef, d Description, by Asked) (head content.TemplateHead, err error) {
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
		writes = append(writes, store.Replace(keys.TemplateHead(ref), next, head.ModRev))
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

// Diff compares two versions: the file at a path or, if path is "", all files. more is true
// when there are more changes than returned. It returns NotFound when a version is not
// stored.
func (s *Service) Diff(ctx context.Context, from, to, path string) (changes []content.FileChange, more bool, err error) {
	a, err := s.Manifest(ctx, from)
	if err != nil {
		return nil, false, errs.Wrap("template.Diff", err)
	}
	b, err := s.Manifest(ctx, to)
	if err != nil {
		return nil, false, errs.Wrap("template.Diff", err)
	}
	all := content.Diff(a, b)
	if path != "" {
		all = slices.DeleteFunc(all, func(c content.FileChange) bool { return c.Path != path })
	}
	changes, more = bounded(all, maxChanges)
	return changes, more, nil
}
