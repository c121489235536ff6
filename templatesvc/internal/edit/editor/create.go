package editor

import (
	"context"
	"io"
	"mime/multipart"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// Creation describes a new template.
type Creation struct {
	Ref                   content.TemplateRef
	Description, Platform string
}

// maxField is the maximum size of a form field in bytes. A character may take four bytes.
const maxField = 4*validate.MaxDescription + 1

func (n Creation) check() error {
	switch {
	case !n.Ref.Valid():
		return errs.Field("name", "must be 1 to 64 letters, digits, _, - or ., and must not begin with .; <group>/<name> when it is not in the group default")
	case n.Ref.Internal():
		return errs.Field("name", "must not be in the group %s, which Orrery uses itself: choose another", n.Ref.Group)
	}
	return content.CheckDescription(n.Description, n.Platform)
}

// CreateOf creates a template from a form with an archive as file and the fields name,
// description and platform, in any order. It returns AlreadyExists when the template
// exists.
func (w *Writer) CreateOf(ctx context.Context, c Change, form *multipart.Reader) (versions.Outcome, error) {
	p, err := w.templates.Begin(ctx, "import")
	if err != nil {
		return versions.Outcome{}, err
	}
	defer p.Close(context.WithoutCancel(ctx))
	n, m, err := w.readImport(ctx, p, form)
	if err != nil {
		return versions.Outcome{}, err
	}
	if err := n.check(); err != nil {
		return versions.Outcome{}, err
	}
	if c.DryRun {
		return w.templates.Rehearse(ctx, versions.Rehearsal{
			Ref: n.Ref,
			Change: func(head content.TemplateHead, _ content.Manifest) (content.Manifest, error) {
				if head.ModRev != 0 {
					return *m, errs.New(errs.AlreadyExists, "template %s already exists: change it or choose another name", n.Ref)
				}
				return *m, nil
			},
		})
	}
	return outcome(p.Commit(ctx, versions.Move{
		Ref: n.Ref, Manifest: *m, Asked: c.For("import", n, contents(m.Entries), m.Variables), Kind: content.MoveImport, Message: "import", Description: &n.Description, Platform: &n.Platform,
	}))
}

func (w *Writer) readImport(ctx context.Context, p *versions.Publish, form *multipart.Reader) (n Creation, m *content.Manifest, err error) {
	fields := map[string]string{}
	for {
		part, err := form.NextPart()
		switch {
		case err == io.EOF && m == nil:
			return n, nil, &errs.Error{Kind: errs.Malformed, Field: "file", Message: "is required: send the archive in the form"}
		case err == io.EOF:
			n.Ref = content.ParseTemplateRef(fields["name"])
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

// PublishDraft publishes an author's draft. It returns the errors of
// versions.Service.PublishDraft.
func (w *Writer) PublishDraft(ctx context.Context, c Change) (versions.Outcome, error) {
	if c.DryRun {
		return w.templates.RehearseDraft(ctx, c.Ref, c.Asked)
	}
	return outcome(w.templates.PublishDraft(ctx, c.Ref, c.Asked, c.Message))
}

// DropDraft deletes an author's draft. It returns NotFound when there is none.
func (w *Writer) DropDraft(ctx context.Context, c Change) error {
	return w.templates.DropDraft(ctx, c.Ref, c.Asked)
}
