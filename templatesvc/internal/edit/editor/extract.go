package editor

import (
	"context"
	"io"
	"mime"
	"mime/multipart"
	"path"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/edit"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// extractor performs operations. It unpacks each archive once, even if the operations run
// again on a newer tree.
type extractor struct {
	writer  *Writer
	publish *versions.Publish
	done    map[string]content.Manifest // by the archive's hash
	files   int                         // number of files in the extracted archives
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
		if m.Entries[i].Kind != content.FileDir {
			x.files++
		}
	}
	return t.Overlay(dir, m.Entries)
}

// unpack stores the files of an archive. It detects the format if f is zero. It returns the
// errors of archive.Read and versions.Publish.Add.
func (w *Writer) unpack(ctx context.Context, p *versions.Publish, r io.Reader, f archive.Format) (content.Manifest, error) {
	o := archive.Options{Format: f, Limits: archive.DefaultLimits(), Spool: w.spool}
	return archive.Collect(ctx, r, o, func(r io.Reader, limit int64) (content.Content, error) { return p.Add(ctx, r, limit) })
}

// Import adds the files of an archive to a template or, with replace, replaces the
// template's files by them. It returns the errors of archive.Read, edit.Tree.Overlay and
// versions.Publish.Commit.
func (w *Writer) Import(ctx context.Context, c Change, replace bool, f archive.Format, body io.Reader) (versions.Outcome, error) {
	c.describe(content.MoveImport, "import an archive")
	return w.change(ctx, c, "import", func(p *versions.Publish) (step, []any, error) {
		m, err := w.unpack(ctx, p, body, f)
		with := []any{replace}
		if c.Kind != content.MoveSave { // the files of an instance may change between two attempts of one save
			if err == nil && c.Path == "" {
				err = w.takeDefinitions(ctx, &m)
			}
			with = append(with, contents(m.Entries), m.Variables)
		}
		return laid(c.Path, m, replace), with, err
	})
}

// contents returns what identifies the entries of an archive, regardless of their order.
func contents(entries []content.ManifestEntry) map[string][]any {
	out := make(map[string][]any, len(entries))
	for i := range entries {
		e := &entries[i]
		out[e.Path] = []any{e.Kind, e.Mode, e.SHA256, e.Target}
	}
	return out
}

// laid returns a step that adds an archive's entries to a directory of a tree or, with
// replace, replaces the whole tree. If the tree has no variable definitions, it takes those
// of the archive.
func laid(dir string, m content.Manifest, replace bool) step {
	return func(t *edit.Tree) error {
		if replace {
			*t = *edit.Of(content.Manifest{Variables: t.Manifest().Variables})
		}
		if len(t.Manifest().Variables) == 0 && len(m.Variables) > 0 {
			t.Define(m.Variables)
		}
		return t.Overlay(dir, m.Entries)
	}
}

// maxParts is the maximum number of files per upload.
const maxParts = 1000

// Upload writes the files of a form into the directory c.Path. With extract, it unpacks
// them as archives. The form may override both by the fields path and extract before the
// files. paths lists the written files. It returns Malformed when the form is damaged or a
// name leaves the directory.
func (w *Writer) Upload(ctx context.Context, c Change, extract bool, form *multipart.Reader) (out versions.Outcome, paths []string, err error) {
	c.describe(content.MoveImport, "upload files")
	if c.Path, err = edit.Clean(c.Path); err != nil {
		return out, nil, err
	}
	out, err = w.change(ctx, c, "upload", func(p *versions.Publish) (step, []any, error) {
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

// told reads the form fields path and extract, and ignores others. It returns Invalid when
// such a field follows a file, because that file is already stored.
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

// take stores one file of a form. entries are what it writes, relative to the directory.
func (w *Writer) take(ctx context.Context, p *versions.Publish, dir string, extract bool, part *multipart.Part) (do step, entries []content.ManifestEntry, err error) {
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
	body, err := p.Add(ctx, formFile{part}, maxUpload)
	e := content.ManifestEntry{Path: name, Size: body.Size, SHA256: body.SHA256, Chunks: body.Chunks}
	return func(t *edit.Tree) error {
		put := e
		put.Path = path.Join(dir, name)
		return t.Put(put, false)
	}, []content.ManifestEntry{e}, err
}

// fileName returns the full file name from the form. multipart.Part.FileName would drop its
// directories, but names that leave the directory must be refused.
func fileName(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

// formFile is a file in a form. Its Read returns Malformed when the form is damaged.
type formFile struct{ *multipart.Part }

// Read implements io.Reader.
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
