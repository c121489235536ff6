package api

import (
	"mime/multipart"
	"net/http"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/edit/editor"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// edits returns the endpoints that change the files of templates. They stream the bodies of
// files and archives.
func (s *Server) edits() map[string]endpoint {
	const one = "/v1/templates/{group}/{name}"
	return map[string]endpoint{
		"PUT " + one + "/file":      s.putFile,
		"POST " + one + "/edits":    s.edit,
		"POST " + one + "/archive":  s.importArchive,
		"POST " + one + "/upload":   s.upload,
		"PUT " + one + "/variables": s.define,
		"POST " + one + "/draft/publish": func(r *http.Request) (result, error) {
			change, err := changeOf(r)
			if err != nil {
				return nil, err
			}
			return writeOutcome(s.Writer.PublishDraft(r.Context(), change))
		},
		"DELETE " + one + "/draft": func(r *http.Request) (result, error) {
			change, err := changeOf(r)
			if err != nil {
				return nil, err
			}
			return writeOutcome(versions.Outcome{}, s.Writer.DropDraft(r.Context(), change))
		},
		"POST /v1/imports": func(r *http.Request) (result, error) {
			change, form, err := readForm(r)
			if err != nil {
				return nil, err
			}
			return writeOutcome(s.Writer.CreateOf(r.Context(), change, form))
		},
	}
}

// changeOf reads the general parameters of a change. It returns the errors of askedOf.
func changeOf(r *http.Request) (editor.Change, error) {
	q := r.URL.Query()
	asked, err := askedOf(r)
	return editor.Change{
		Ref: refOf(r), Asked: asked, Message: header(r, client.HeaderMessage), Kind: content.MoveKind(q.Get("kind")),
		Create: q.Get("create") == "true", Draft: q.Get("draft") == "true", DryRun: q.Get("dryRun") == "true", IfMatch: r.Header.Get("If-Match"), Path: q.Get("path"),
	}, err
}

func (s *Server) putFile(r *http.Request) (result, error) {
	change, err := changeOf(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	var mode uint64
	if text := q.Get("mode"); text != "" {
		if mode, err = strconv.ParseUint(text, 8, 32); err != nil || mode > 0o777 {
			return nil, &errs.Error{Kind: errs.Malformed, Field: "mode", Message: "must be permission bits in octal, such as 644"}
		}
	}
	return writeOutcome(s.Writer.PutFile(r.Context(), change, uint32(mode), q.Get("only") == "true", r.Body))
}

func (s *Server) edit(r *http.Request) (result, error) {
	var body client.Ops
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	change, err := changeOf(r)
	if err != nil {
		return nil, err
	}
	var ops []editor.Op
	for _, op := range body.Ops {
		ops = append(ops, editor.Op{Kind: editor.OpKind(op.Op), Path: op.Path, To: op.To, Remove: op.Remove})
	}
	out, files, err := s.Writer.Edit(r.Context(), change, ops)
	e := edited(out)
	e.Files = files
	return writeJSON(e, err)
}

func (s *Server) importArchive(r *http.Request) (result, error) {
	change, err := changeOf(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	return writeOutcome(s.Writer.Import(r.Context(), change, q.Get("replace") == "true", archive.Format(q.Get("format")), r.Body))
}

func (s *Server) upload(r *http.Request) (result, error) {
	change, form, err := readForm(r)
	if err != nil {
		return nil, err
	}
	out, paths, err := s.Writer.Upload(r.Context(), change, r.URL.Query().Get("extract") == "true", form)
	e := edited(out)
	e.Paths = paths
	return writeJSON(e, err)
}

func readForm(r *http.Request) (editor.Change, *multipart.Reader, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return editor.Change{}, nil, &errs.Error{Kind: errs.Malformed, Message: "send a form with files, as multipart/form-data", Err: err}
	}
	change, err := changeOf(r)
	return change, form, err
}

func (s *Server) define(r *http.Request) (result, error) {
	var body client.Definitions
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	change, err := changeOf(r)
	if err != nil {
		return nil, err
	}
	return writeOutcome(s.Writer.SetVariables(r.Context(), change, body.Variables))
}
