package editor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/edit"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// maxDefinitions is the maximum size of a template's variable definitions in bytes. It is
// small because heads contain them.
const maxDefinitions = 32 << 10

// maxUpload is the maximum size of an uploaded file in bytes.
const maxUpload = 512 << 20

// Writer changes templates. Each change is one version with its author. A Writer is safe
// for concurrent use.
type Writer struct {
	templates *versions.Service
	// spool is the directory for archives that have to be read from their end.
	spool string
}

// NewWriter returns a Writer for a service's templates.
func NewWriter(s *versions.Service, spool string) *Writer { return &Writer{s, spool} }

// Change describes a change of a template and its preconditions.
type Change struct {
	Ref content.TemplateRef
	versions.Asked
	// Message says why; if empty, it says what was done.
	Message string
	Kind    content.MoveKind
	// Create creates the template if it does not exist. Otherwise the change fails with
	// NotFound.
	Create bool
	// Draft stages the change in the author's draft instead of publishing it.
	Draft bool
	// DryRun only computes the result of the change.
	DryRun bool
	// IfMatch is the required hash of the file at Path. "*" means any file; "" means no
	// condition.
	IfMatch, Path string
}

// step edits a tree. It may be called again with a newer tree.
type step func(*edit.Tree) error

// change stores content under a publish and commits the result of a step. If the head moves
// meanwhile, it repeats the step with the new tree. prepare returns the step and the
// parameters that identify the change.
func (w *Writer) change(ctx context.Context, c Change, kind string, prepare func(*versions.Publish) (do step, with []any, err error)) (versions.Outcome, error) {
	if !c.Ref.Valid() {
		return versions.Outcome{}, errs.Field("name", "%q is not a template's name: use letters, digits, _ - and .", c.Ref.String())
	}
	p, err := w.templates.Begin(ctx, string(c.Kind)+" "+c.Ref.String())
	if err != nil {
		return versions.Outcome{}, err
	}
	defer p.Close(context.WithoutCancel(ctx))
	do, with, err := prepare(p)
	if err != nil {
		return versions.Outcome{}, err
	}
	c.Asked = c.For(kind, c.Path, c.Message, c.Kind, c.Create, c.Draft, with)
	switch {
	case c.DryRun:
		return w.templates.Rehearse(ctx, versions.Rehearsal{
			Ref: c.Ref, Asked: c.Asked, Draft: c.Draft,
			Change: func(head content.TemplateHead, current content.Manifest) (content.Manifest, error) {
				return w.apply(ctx, c, head, current, do)
			},
		})
	case c.Draft:
		return w.stage(ctx, p, c, do)
	}
	return outcome(p.Commit(ctx, versions.Move{
		Ref: c.Ref, Base: anyBase, Asked: c.Asked, Kind: c.Kind, Message: c.Message,
		Rebase: func(m *versions.Move, head content.TemplateHead, current content.Manifest) (err error) {
			m.Manifest, err = w.apply(ctx, c, head, current, do)
			return err
		},
	}))
}

// outcome returns the outcome of a change that moved a head.
func outcome(head content.TemplateHead, err error) (versions.Outcome, error) {
	return versions.Outcome{Head: head}, err
}

// stage makes the change in the author's draft.
func (w *Writer) stage(ctx context.Context, p *versions.Publish, c Change, do step) (versions.Outcome, error) {
	return outcome(p.Stage(ctx, c.Ref, c.Asked, func(head content.TemplateHead, current content.Manifest) (content.Manifest, error) {
		return w.apply(ctx, c, head, current, do)
	}))
}

// SetVariables replaces the variable definitions of a template. An Invalid error names the
// wrong definition.
func (w *Writer) SetVariables(ctx context.Context, c Change, defined []content.Variable) (versions.Outcome, error) {
	c.describe(content.MoveEdit, "define variables")
	if problems := content.ValidateVariables(defined); len(problems) > 0 {
		return versions.Outcome{}, problems[0]
	}
	if b, err := json.Marshal(defined); err != nil || len(b) > maxDefinitions {
		return versions.Outcome{}, errs.New(errs.Invalid, "the definitions have more than %d KiB in all", maxDefinitions>>10)
	}
	return w.change(ctx, c, "definition", func(*versions.Publish) (step, []any, error) {
		return func(t *edit.Tree) error {
			t.Define(defined)
			return nil
		}, []any{defined}, nil
	})
}

// anyBase is not a digest, so Commit always calls Rebase with the current head.
const anyBase = "any"

// apply returns the manifest after a step.
func (w *Writer) apply(ctx context.Context, c Change, head content.TemplateHead, current content.Manifest, do step) (content.Manifest, error) {
	if head.ModRev == 0 && !c.Create {
		return current, errs.New(errs.NotFound, "template %s does not exist: create it first", c.Ref)
	}
	if _, err := w.templates.Editable(ctx, head); err != nil {
		return current, err
	}
	t := edit.Of(current)
	if err := c.matches(t); err != nil {
		return current, err
	}
	err := do(t)
	return t.Manifest(), err
}

// matches checks IfMatch.
func (c Change) matches(t *edit.Tree) error {
	if c.IfMatch == "" {
		return nil
	}
	e, err := t.File(c.Path)
	if err == nil && (c.IfMatch == "*" || c.IfMatch == e.SHA256) {
		return nil
	}
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	return &errs.Error{Kind: errs.Conflict, Field: client.Stale, Message: c.Path + " has changed since you read it: read it again"}
}

// PutFile writes a file. Mode 0 keeps the mode of an existing file. With only, PutFile does
// not overwrite a file. It returns the errors of edit.Tree.Put and versions.Publish.Commit.
func (w *Writer) PutFile(ctx context.Context, c Change, mode uint32, only bool, body io.Reader) (versions.Outcome, error) {
	c.describe(content.MoveEdit, "write "+c.Path)
	if _, err := edit.Clean(c.Path); err != nil {
		return versions.Outcome{}, err
	}
	return w.change(ctx, c, "write", func(p *versions.Publish) (step, []any, error) {
		data, err := p.Add(ctx, body, maxUpload)
		return func(t *edit.Tree) error {
			return t.Put(content.ManifestEntry{Path: c.Path, Mode: mode & 0o777, Size: data.Size, SHA256: data.SHA256, Chunks: data.Chunks}, only)
		}, []any{mode, only, data.SHA256}, err
	})
}

// describe sets the kind and the message if they are empty.
func (c *Change) describe(kind content.MoveKind, did string) {
	if c.Kind == "" {
		c.Kind = kind
	}
	if c.Message == "" {
		c.Message = did
	}
}

// OpKind is a kind of operation on a path.
type OpKind string

// The kinds of operations.
const (
	OpMkdir  OpKind = "mkdir"
	OpRename OpKind = "rename"
	OpDelete OpKind = "delete"
	// OpExtract unpacks an archive in the template into the archive's directory.
	OpExtract OpKind = "extract"
)

// Op is one operation on a tree.
type Op struct {
	Kind OpKind
	Path string
	// To is the new path of a rename.
	To string
	// Remove deletes the archive after OpExtract.
	Remove bool
}

// maxOps is the maximum number of operations per change.
const maxOps = 1000

// Edit performs operations in order, all or none. files is the number of files in the
// extracted archives. It returns the errors of package edit, archive.Collect and
// versions.Publish.Commit.
func (w *Writer) Edit(ctx context.Context, c Change, ops []Op) (out versions.Outcome, files int, err error) {
	if len(ops) == 0 || len(ops) > maxOps {
		return versions.Outcome{}, 0, errs.Field("ops", "must be 1 to %d operations", maxOps)
	}
	did := ""
	for i, op := range ops {
		if i > 0 {
			did += ", "
		}
		if i == 3 {
			did += fmt.Sprintf("%d more", len(ops)-i)
			break
		}
		did += string(op.Kind) + " " + op.Path
		if op.To != "" {
			did += " to " + op.To
		}
	}
	c.describe(content.MoveEdit, did)
	out, err = w.change(ctx, c, "edit", func(p *versions.Publish) (step, []any, error) {
		x := &extractor{writer: w, publish: p, done: map[string]content.Manifest{}}
		return func(t *edit.Tree) error {
			x.files = 0
			defer func() { files = x.files }()
			for _, op := range ops {
				if err := x.do(ctx, t, op); err != nil {
					return err
				}
			}
			return nil
		}, []any{ops}, nil
	})
	return out, files, err
}
