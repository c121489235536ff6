package editor

import (
	"context"
	"io"
	"mime"
	"mime/multipart"
	"path"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/edit"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// extractor performs operations; an archive is unpacked once, however often its tree moves.
type extractor struct {
	writer  *Writer
	publish *template.Publish
	done    map[string]fleet.Manifest // by the archive's hash
	files   int                       // that archives held
}

// do performs one operation.
func (x *extractor) do(ctx context.Context, t *edit.Tree, op Op) error {
	switch op.Kind {
	case OpMkdir:
		return t.Mkdir(op.Path)
	case OpRename:
		return t.Rename(op.Path, op.To)
	case OpDelete:
		return t.Delete(op.Path)
	case OpExtract:
		return x.extract(ctx, t, op)
	}
	return errs.Field("op", "%q is not known: use mkdir, rename, delete or extract", string(op.Kind))
}

func (x *extractor) extract(ctx context.Context, t *edit.Tree, op Op) error {
	e, err := t.File(op.Path)
	if err != nil {
		return err
	}
	m, known := x.done[e.SHA256]
	if !known {
		content, err := x.writer.templates.Open(ctx, e.Content())
		if err != nil {
			return err
		}
		defer content.Close()
		if m, err = x.writer.unpack(ctx, x.publish, content, archive.FormatOf(op.Path)); err != nil {
			return err
		}
		x.done[e.SHA256] = m
	}
	if op.Remove {
		if err := t.Delete(op.Path); err != nil {
			return err
		}
	}
	dir := path.Dir(op.Path)
	if dir == "." {
		dir = ""
	}
	for i := range m.Entries {
		if m.Entries[i].Kind != fleet.FileDir {
			x.files++
		}
	}
	return t.Overlay(dir, m.Entries)
}

// unpack stores an archive's files. The zero format is found out. Errors as of
// archive.Read and template.Publish.Add.
func (w *Writer) unpack(ctx context.Context, p *template.Publish, r io.Reader, f archive.Format) (fleet.Manifest, error) {
	o := archive.Options{Format: f, Limits: archive.DefaultLimits(), Spool: w.spool}
	return archive.Collect(ctx, r, o, func(r io.Reader, limit int64) (fleet.Content, error) { return p.Add(ctx, r, limit) })
}

// Import lays an archive over a template's files, or with replace puts it in their
// place. Errors as of archive.Read, edit.Tree.Overlay and template.Commit.
func (w *Writer) Import(ctx context.Context, c Change, replace bool, f archive.Format, body io.Reader) (template.Outcome, error) {
	c.describe(fleet.MoveImport, "import an archive")
	return w.change(ctx, c, "import", func(p *template.Publish) (step, []any, error) {
		m, err := w.unpack(ctx, p, body, f)
		with := []any{replace}
		if c.Kind != fleet.MoveSave { // an instance's files go on changing while it is asked again
			if err == nil && c.Path == "" {
				err = w.takeDefinitions(ctx, &m)
			}
			with = append(with, contents(m.Entries), m.Variables)
		}
		return laid(c.Path, m, replace), with, err
	})
}

// contents tell entries from others, in any order.
func contents(entries []fleet.ManifestEntry) map[string][]any {
	out := make(map[string][]any, len(entries))
	for i := range entries {
		e := &entries[i]
		out[e.Path] = []any{e.Kind, e.Mode, e.SHA256, e.Target}
	}
	return out
}

// laid puts an archive's entries into a directory of a tree, or all of the tree's place. A
// tree that defines no variables takes the archive's definitions.
func laid(dir string, m fleet.Manifest, replace bool) step {
	return func(t *edit.Tree) error {
		if replace {
			*t = *edit.Of(fleet.Manifest{Variables: t.Manifest().Variables})
		}
		if len(t.Manifest().Variables) == 0 && len(m.Variables) > 0 {
			t.Define(m.Variables)
		}
		return t.Overlay(dir, m.Entries)
	}
}

// maxParts bounds the files of one upload.
const maxParts = 1000

// Upload writes the files of a form into the directory c.Path, under the names they have
// there, or with extract what the archives hold; fields path and extract of the form,
// before its files, say so too. paths are those written. Malformed when
// the form is damaged or a name leads out.
func (w *Writer) Upload(ctx context.Context, c Change, extract bool, form *multipart.Reader) (out template.Outcome, paths []string, err error) {
	c.describe(fleet.MoveImport, "upload files")
	if c.Path, err = edit.Clean(c.Path); err != nil {
		return out, nil, err
	}
	out, err = w.change(ctx, c, "upload", func(p *template.Publish) (step, []any, error) {
		var steps []step
		with := []any{extract}
		for {
			part, err := form.NextPart()
			switch {
			case err == io.EOF && len(steps) == 0:
				return nil, nil, &errs.Error{Kind: errs.Malformed, Field: "file", Message: "is required: send a form with files"}
			case err == io.EOF:
				return func(t *edit.Tree) error {
					for _, do := range steps {
						if err := do(t); err != nil {
							return err
						}
					}
					return nil
				}, with, nil
			case err != nil:
				return nil, nil, brokenForm(err)
			case len(steps) == maxParts:
				return nil, nil, errs.New(errs.TooLarge, "the form has more than %d files: send them in several, or as an archive", maxParts)
			case part.FormName() != "file":
				if err := told(part, len(steps) > 0, &c.Path, &extract); err != nil {
					return nil, nil, err
				}
				with = append(with, c.Path, extract)
				continue
			}
			do, entries, err := w.take(ctx, p, c.Path, extract, part)
			if err != nil {
				return nil, nil, err
			}
			steps, with = append(steps, do), append(with, contents(entries))
			for i := range entries {
				name := path.Join(c.Path, entries[i].Path)
				if !extract && slices.Contains(paths, name) {
					return nil, nil, &errs.Error{Kind: errs.Malformed, Field: "file", Message: name + " is in the form twice"}
				}
				paths = append(paths, name)
			}
		}
	})
	return out, paths, err
}

// told reads a field of an upload's form that says where its files go, or that they are
// unpacked; others are left alone. Files are stored as they come, so that afterwards it
// is too late: Invalid.
func told(part *multipart.Part, late bool, dir *string, extract *bool) error {
	field := part.FormName()
	if field != "path" && field != "extract" {
		return nil
	}
	if late {
		return errs.Field(field, "comes after a file, which is stored by then: send it before the files, or in the query")
	}
	value, err := io.ReadAll(io.LimitReader(part, maxField+1))
	switch {
	case err != nil:
		return brokenForm(err)
	case len(value) > maxField:
		return errs.Field(field, "is longer than %d bytes", maxField)
	case field == "path":
		*dir, err = edit.Clean(string(value))
		return err
	case string(value) != "true" && string(value) != "false":
		return errs.Field(field, "must be true or false")
	}
	*extract = string(value) == "true"
	return nil
}

// take stores one file of a form. entries are what is written, below the directory.
func (w *Writer) take(ctx context.Context, p *template.Publish, dir string, extract bool, part *multipart.Part) (do step, entries []fleet.ManifestEntry, err error) {
	name := fileName(part)
	if extract {
		m, err := w.unpack(ctx, p, formFile{part}, archive.FormatOf(name))
		return laid(dir, m, false), m.Entries, err
	}
	if name, err = edit.Clean(name); err == nil && name == "" {
		err = &errs.Error{Kind: errs.Malformed, Field: "file", Message: "must have a file name"}
	}
	if err != nil {
		return nil, nil, err
	}
	content, err := p.Add(ctx, formFile{part}, maxUpload)
	e := fleet.ManifestEntry{Path: name, Size: content.Size, SHA256: content.SHA256, Chunks: content.Chunks}
	return func(t *edit.Tree) error {
		put := e
		put.Path = path.Join(dir, name)
		return t.Put(put, false)
	}, []fleet.ManifestEntry{e}, err
}

// fileName is a file's name as the form has it, whole: what leads out is to be refused,
// not cut.
func fileName(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

// formFile is a file in a form. Where the form breaks off within it, that is said.
type formFile struct{ *multipart.Part }

// Read reads on.
func (f formFile) Read(b []byte) (int, error) {
	n, err := f.Part.Read(b)
	if err != nil && err != io.EOF {
		err = brokenForm(err)
	}
	return n, err
}

func brokenForm(err error) error {
	if k := errs.KindOf(err); k != errs.Internal {
		return err
	}
	return &errs.Error{Kind: errs.Malformed, Message: "the form is damaged or breaks off: send it whole, as multipart/form-data", Err: err}
}
