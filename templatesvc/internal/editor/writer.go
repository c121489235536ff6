package editor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/edit"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// maxDefinitions bounds the definitions of a template's variables, in bytes: heads carry them.
const maxDefinitions = 32 << 10

// maxUpload bounds one uploaded file, in bytes.
const maxUpload = 512 << 20

// Writer changes templates: each change is one version with its author. It is safe for
// concurrent use.
type Writer struct {
	templates *template.Service
	// spool is where archives lie that have to be read from their end.
	spool string
}

// NewWriter changes what a service keeps.
func NewWriter(s *template.Service, spool string) *Writer { return &Writer{s, spool} }

// Change says what is changed, by whom and under which conditions.
type Change struct {
	Ref fleet.TemplateRef
	template.Asked
	// Message says what for; empty says what was done.
	Message string
	Kind    fleet.MoveKind
	// Create makes the template when it does not exist; such a change is NotFound else.
	Create bool
	// Draft stages the change in the author's draft instead of publishing it.
	Draft bool
	// DryRun makes no change, and tells what it would come to.
	DryRun bool
	// IfMatch is the hash the file at Path must have, "*" any; empty demands nothing.
	IfMatch, Path string
}

// step turns a tree into the next one. It may be called again, with a newer tree.
type step func(*edit.Tree) error

// change stores content under a publish and commits what the step it yields makes of
// the template's present tree, however often that moves meanwhile. prepare yields with it
// what tells the change from others of its kind.
func (w *Writer) change(ctx context.Context, c Change, kind string, prepare func(*template.Publish) (do step, with []any, err error)) (template.Outcome, error) {
	if !c.Ref.Valid() {
		return template.Outcome{}, errs.Field("name", "%q is not a template's name: use letters, digits, _ - and .", c.Ref.String())
	}
	p, err := w.templates.Begin(ctx, string(c.Kind)+" "+c.Ref.String())
	if err != nil {
		return template.Outcome{}, err
	}
	defer p.Close(context.WithoutCancel(ctx))
	do, with, err := prepare(p)
	if err != nil {
		return template.Outcome{}, err
	}
	c.Asked = c.For(kind, c.Path, c.Message, c.Kind, c.Create, c.Draft, with)
	switch {
	case c.DryRun:
		return w.templates.Rehearse(ctx, template.Rehearsal{
			Ref: c.Ref, Asked: c.Asked, Draft: c.Draft,
			Change: func(head fleet.TemplateHead, current fleet.Manifest) (fleet.Manifest, error) {
				return w.apply(ctx, c, head, current, do)
			},
		})
	case c.Draft:
		return w.stage(ctx, p, c, do)
	}
	return outcome(p.Commit(ctx, template.Move{
		Ref: c.Ref, Base: anyBase, Asked: c.Asked, Kind: c.Kind, Message: c.Message,
		Rebase: func(m *template.Move, head fleet.TemplateHead, current fleet.Manifest) (err error) {
			m.Manifest, err = w.apply(ctx, c, head, current, do)
			return err
		},
	}))
}

// outcome is that of a change that moved a head.
func outcome(head fleet.TemplateHead, err error) (template.Outcome, error) {
	return template.Outcome{Head: head}, err
}

// stage makes the change in the author's draft.
func (w *Writer) stage(ctx context.Context, p *template.Publish, c Change, do step) (template.Outcome, error) {
	return outcome(p.Stage(ctx, c.Ref, c.Asked, func(head fleet.TemplateHead, current fleet.Manifest) (fleet.Manifest, error) {
		return w.apply(ctx, c, head, current, do)
	}))
}

// SetVariables replaces the definitions of a template's variables. Invalid names the
// definition at fault.
func (w *Writer) SetVariables(ctx context.Context, c Change, defined []fleet.Variable) (template.Outcome, error) {
	c.describe(fleet.MoveEdit, "define variables")
	if problems := fleet.ValidateVariables(defined); len(problems) > 0 {
		return template.Outcome{}, problems[0]
	}
	if b, err := json.Marshal(defined); err != nil || len(b) > maxDefinitions {
		return template.Outcome{}, errs.New(errs.Invalid, "the definitions have more than %d KiB in all", maxDefinitions>>10)
	}
	return w.change(ctx, c, "definition", func(*template.Publish) (step, []any, error) {
		return func(t *edit.Tree) error {
			t.Define(defined)
			return nil
		}, []any{defined}, nil
	})
}

// anyBase is no version's digest: what is committed is always computed from the head.
const anyBase = "any"

// apply is the manifest after a step from a head.
func (w *Writer) apply(ctx context.Context, c Change, head fleet.TemplateHead, current fleet.Manifest, do step) (fleet.Manifest, error) {
	if head.ModRev == 0 && !c.Create {
		return current, errs.New(errs.NotFound, "template %s does not exist: make it first", c.Ref)
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

// matches holds IfMatch against a tree.
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
	return &errs.Error{Kind: errs.Conflict, Field: client.Stale, Message: c.Path + " is not what it was when you read it: read it again"}
}

// PutFile writes a file with what body yields; mode 0 keeps the one it has. only refuses
// to write over one. Errors as of edit.Tree.Put and template.Commit.
func (w *Writer) PutFile(ctx context.Context, c Change, mode uint32, only bool, body io.Reader) (template.Outcome, error) {
	c.describe(fleet.MoveEdit, "write "+c.Path)
	if _, err := edit.Clean(c.Path); err != nil {
		return template.Outcome{}, err
	}
	return w.change(ctx, c, "write", func(p *template.Publish) (step, []any, error) {
		content, err := p.Add(ctx, body, maxUpload)
		return func(t *edit.Tree) error {
			return t.Put(fleet.ManifestEntry{Path: c.Path, Mode: mode & 0o777, Size: content.Size, SHA256: content.SHA256, Chunks: content.Chunks}, only)
		}, []any{mode, only, content.SHA256}, err
	})
}

// describe fills in what the caller left open.
func (c *Change) describe(kind fleet.MoveKind, did string) {
	if c.Kind == "" {
		c.Kind = kind
	}
	if c.Message == "" {
		c.Message = did
	}
}

// OpKind is what is done to a path.
type OpKind string

// The kinds of operations.
const (
	OpMkdir  OpKind = "mkdir"
	OpRename OpKind = "rename"
	OpDelete OpKind = "delete"
	// OpExtract unpacks an archive that lies in the template into the directory it lies in.
	OpExtract OpKind = "extract"
)

// Op is one operation on a tree.
type Op struct {
	Kind OpKind
	Path string
	// To is a rename's new path.
	To string
	// Remove deletes an archive that was extracted.
	Remove bool
}

// maxOps bounds the operations of one change.
const maxOps = 1000

// Edit performs operations in order, all or none. files counts what the extracted archives
// held. Errors as of package edit, of archive.Collect and of template.Commit.
func (w *Writer) Edit(ctx context.Context, c Change, ops []Op) (out template.Outcome, files int, err error) {
	if len(ops) == 0 || len(ops) > maxOps {
		return template.Outcome{}, 0, errs.Field("ops", "must be 1 to %d operations", maxOps)
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
	c.describe(fleet.MoveEdit, did)
	out, err = w.change(ctx, c, "edit", func(p *template.Publish) (step, []any, error) {
		x := &extractor{writer: w, publish: p, done: map[string]fleet.Manifest{}}
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
