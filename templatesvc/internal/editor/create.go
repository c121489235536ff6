package editor

import (
	"context"
	"io"
	"mime/multipart"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// Creation is a template that is to be made.
type Creation struct {
	Ref                   fleet.TemplateRef
	Description, Platform string
}

// maxField bounds a field of a form, in bytes: a description's characters may take four each.
const maxField = 4*fleet.MaxDescription + 1

func (n Creation) check() error {
	switch {
	case !n.Ref.Valid():
		return errs.Field("name", "must be 1 to 64 letters, digits, _ - or . without a . at its beginning; <group>/<name> when it is not in the group default")
	case n.Ref.Internal():
		return errs.Field("name", "must not be in the group %s, which is Orrery's own: choose another", n.Ref.Group)
	}
	return fleet.CheckDescription(n.Description, n.Platform)
}

// CreateOf makes a template of a form: an archive as file, and the fields name,
// description and platform, in any order. AlreadyExists when there is one.
func (w *Writer) CreateOf(ctx context.Context, c Change, form *multipart.Reader) (template.Outcome, error) {
	p, err := w.templates.Begin(ctx, "import")
	if err != nil {
		return template.Outcome{}, err
	}
	defer p.Close(context.WithoutCancel(ctx))
	n, m, err := w.readImport(ctx, p, form)
	if err != nil {
		return template.Outcome{}, err
	}
	if err := n.check(); err != nil {
		return template.Outcome{}, err
	}
	if c.DryRun {
		return w.templates.Rehearse(ctx, template.Rehearsal{
			Ref: n.Ref,
			Change: func(head fleet.TemplateHead, _ fleet.Manifest) (fleet.Manifest, error) {
				if head.ModRev != 0 {
					return *m, errs.New(errs.AlreadyExists, "template %s exists already: change it, or choose another name", n.Ref)
				}
				return *m, nil
			},
		})
	}
	return outcome(p.Commit(ctx, template.Move{
		Ref: n.Ref, Manifest: *m, Asked: c.For("import", n, contents(m.Entries), m.Variables), Kind: fleet.MoveImport, Message: "import", Description: &n.Description, Platform: &n.Platform,
	}))
}

func (w *Writer) readImport(ctx context.Context, p *template.Publish, form *multipart.Reader) (n Creation, m *fleet.Manifest, err error) {
	fields := map[string]string{}
	for {
		part, err := form.NextPart()
		switch {
		case err == io.EOF && m == nil:
			return n, nil, &errs.Error{Kind: errs.Malformed, Field: "file", Message: "is required: send the archive in the form"}
		case err == io.EOF:
			n.Ref = fleet.ParseTemplateRef(fields["name"])
			n.Description, n.Platform = fields["description"], fields["platform"]
			return n, m, nil
		case err != nil:
			return n, nil, brokenForm(err)
		}
		switch name := part.FormName(); name {
		case "name", "description", "platform":
			b, err := io.ReadAll(io.LimitReader(part, maxField+1))
			if err != nil {
				return n, nil, brokenForm(err)
			}
			if len(b) > maxField {
				return n, nil, errs.Field(name, "is longer than %d bytes", maxField)
			}
			fields[name] = string(b)
		case "file":
			if m != nil {
				return n, nil, &errs.Error{Kind: errs.Malformed, Field: "file", Message: "is in the form twice"}
			}
			unpacked, err := w.unpack(ctx, p, formFile{part}, archive.FormatOf(fileName(part)))
			if err == nil {
				err = w.takeDefinitions(ctx, &unpacked)
			}
			if err != nil {
				return n, nil, err
			}
			m = &unpacked
		}
	}
}

// PublishDraft publishes what an author has staged. Errors as of template.PublishDraft.
func (w *Writer) PublishDraft(ctx context.Context, c Change) (template.Outcome, error) {
	if c.DryRun {
		return w.templates.RehearseDraft(ctx, c.Ref, c.Asked)
	}
	return outcome(w.templates.PublishDraft(ctx, c.Ref, c.Asked, c.Message))
}

// DropDraft forgets what an author has staged. NotFound when there is nothing.
func (w *Writer) DropDraft(ctx context.Context, c Change) error {
	return w.templates.DropDraft(ctx, c.Ref, c.Asked)
}
