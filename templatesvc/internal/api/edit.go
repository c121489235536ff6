package api

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	kithttp "github.com/go-kit/kit/transport/http"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/api/endpoint"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/edit/editor"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// mountEdits adds the routes that change templates. Their bodies are streamed.
func mountEdits(mux *http.ServeMux, e endpoint.Edits, opts []kithttp.ServerOption) {
	const one = "/v1/templates/{group}/{name}"
	mux.Handle("PUT "+one+"/file", kithttp.NewServer(e.Put, readPut, writeJSON, opts...))
	mux.Handle("POST "+one+"/edits", kithttp.NewServer(e.Edit, readEdits, writeJSON, opts...))
	mux.Handle("POST "+one+"/archive", kithttp.NewServer(e.Import, readArchive, writeJSON, opts...))
	mux.Handle("POST "+one+"/upload", kithttp.NewServer(e.Upload, readForm, writeJSON, opts...))
	mux.Handle("PUT "+one+"/variables", kithttp.NewServer(e.Define, readDefinitions, writeJSON, opts...))
	mux.Handle("POST "+one+"/draft/publish", kithttp.NewServer(e.PublishDraft, readChange, writeJSON, opts...))
	mux.Handle("DELETE "+one+"/draft", kithttp.NewServer(e.DropDraft, readChange, writeJSON, opts...))
	mux.Handle("POST /v1/imports", kithttp.NewServer(e.CreateOf, readForm, writeJSON, opts...))
}

func refOf(r *http.Request) content.TemplateRef {
	return content.TemplateRef{Group: r.PathValue("group"), Name: r.PathValue("name")}
}

// operationForm is the pattern of an operation ID.
var operationForm = regexp.MustCompile(`^[0-9A-Za-z]{1,64}$`)

// askedOf reads the author, the operation ID and the revision of a change. It returns
// Malformed when they are not valid.
func askedOf(r *http.Request) (a versions.Asked, err error) {
	a = versions.Asked{
		Author: header(r, client.HeaderActor), Owner: r.Header.Get(client.HeaderOwner), Operation: r.Header.Get(client.HeaderOperation),
		Request: r.Header.Get(client.HeaderRequest), Shown: content.Visibility(r.Header.Get(client.HeaderShown)),
	}
	for _, name := range []string{client.HeaderOwner, client.HeaderOperation, client.HeaderRequest} {
		if text := r.Header.Get(name); text != "" && !operationForm.MatchString(text) {
			return a, errs.New(errs.Malformed, "%s must be 1 to 64 letters and digits", name)
		}
	}
	if rev := r.URL.Query().Get("revision"); rev != "" {
		if a.Revision, err = strconv.ParseInt(rev, 10, 64); err != nil || a.Revision <= 0 {
			return a, &errs.Error{Kind: errs.Malformed, Field: "revision", Message: "must be a revision"}
		}
	}
	return a, nil
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

// header returns the unescaped value of a header.
func header(r *http.Request, name string) string {
	text, err := url.QueryUnescape(r.Header.Get(name))
	if err != nil {
		return ""
	}
	return text
}

func readPut(_ context.Context, r *http.Request) (any, error) {
	change, err := changeOf(r)
	if err != nil {
		return nil, err
	}
	out := endpoint.PutRequest{Change: change, Only: r.URL.Query().Get("only") == "true", Body: r.Body}
	if mode := r.URL.Query().Get("mode"); mode != "" {
		n, err := strconv.ParseUint(mode, 8, 32)
		if err != nil || n > 0o777 {
			return nil, &errs.Error{Kind: errs.Malformed, Field: "mode", Message: "must be permission bits in octal, such as 644"}
		}
		out.Mode = uint32(n)
	}
	return out, nil
}

func readEdits(_ context.Context, r *http.Request) (any, error) {
	var body client.Ops
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	change, err := changeOf(r)
	out := endpoint.EditRequest{Change: change}
	for _, op := range body.Ops {
		out.Ops = append(out.Ops, editor.Op{Kind: editor.OpKind(op.Op), Path: op.Path, To: op.To, Remove: op.Remove})
	}
	return out, err
}

func readArchive(_ context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	change, err := changeOf(r)
	return endpoint.ImportRequest{Change: change, Replace: q.Get("replace") == "true", Format: archive.Format(q.Get("format")), Body: r.Body}, err
}

func readForm(_ context.Context, r *http.Request) (any, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return nil, &errs.Error{Kind: errs.Malformed, Message: "send a form with files, as multipart/form-data", Err: err}
	}
	change, err := changeOf(r)
	return endpoint.UploadRequest{Change: change, Extract: r.URL.Query().Get("extract") == "true", Form: form}, err
}

func readChange(_ context.Context, r *http.Request) (any, error) { return changeOf(r) }

func readDefinitions(_ context.Context, r *http.Request) (any, error) {
	var body client.Definitions
	if err := wire.DecodeJSON(r.Body, 0, &body); err != nil {
		return nil, err
	}
	change, err := changeOf(r)
	return endpoint.DefineRequest{Change: change, Variables: body.Variables}, err
}
