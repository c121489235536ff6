package endpoint

import (
	"context"
	"io"
	"mime/multipart"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/edit/editor"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// Edits are the endpoints that change templates. Each returns a client.Edited.
type Edits struct {
	// Put takes a PutRequest.
	Put endpoint.Endpoint
	// Edit takes an EditRequest.
	Edit endpoint.Endpoint
	// Import takes an ImportRequest, Upload an UploadRequest.
	Import, Upload endpoint.Endpoint
	// CreateOf takes an UploadRequest.
	CreateOf endpoint.Endpoint
	// Define takes a DefineRequest.
	Define endpoint.Endpoint
	// PublishDraft and DropDraft take an editor.Change.
	PublishDraft, DropDraft endpoint.Endpoint
}

// DefineRequest replaces the variable definitions of a template.
type DefineRequest struct {
	Change    editor.Change
	Variables []content.Variable
}

// PutRequest writes one file.
type PutRequest struct {
	Change editor.Change
	Mode   uint32
	// Only refuses to overwrite a file.
	Only bool
	Body io.Reader
}

// EditRequest performs operations.
type EditRequest struct {
	Change editor.Change
	Ops    []editor.Op
}

// ImportRequest adds an archive to a template, or replaces the template's files.
type ImportRequest struct {
	Change  editor.Change
	Replace bool
	Format  archive.Format
	Body    io.Reader
}

// UploadRequest writes the files of a form.
type UploadRequest struct {
	Change  editor.Change
	Extract bool
	Form    *multipart.Reader
}

// NewEdits returns the endpoints of a writer.
func NewEdits(w *editor.Writer) Edits {
	return Edits{
		Put: edits(func(ctx context.Context, q PutRequest) (versions.Outcome, error) {
			return w.PutFile(ctx, q.Change, q.Mode, q.Only, q.Body)
		}),
		Edit: of(func(ctx context.Context, q EditRequest) (any, error) {
			out, files, err := w.Edit(ctx, q.Change, q.Ops)
			e := edited(out)
			e.Files = files
			return e, err
		}),
		Import: edits(func(ctx context.Context, q ImportRequest) (versions.Outcome, error) {
			return w.Import(ctx, q.Change, q.Replace, q.Format, q.Body)
		}),
		Upload: of(func(ctx context.Context, q UploadRequest) (any, error) {
			out, paths, err := w.Upload(ctx, q.Change, q.Extract, q.Form)
			e := edited(out)
			e.Paths = paths
			return e, err
		}),
		CreateOf: edits(func(ctx context.Context, q UploadRequest) (versions.Outcome, error) {
			return w.CreateOf(ctx, q.Change, q.Form)
		}),
		Define: edits(func(ctx context.Context, q DefineRequest) (versions.Outcome, error) {
			return w.SetVariables(ctx, q.Change, q.Variables)
		}),
		PublishDraft: edits(func(ctx context.Context, c editor.Change) (versions.Outcome, error) { return w.PublishDraft(ctx, c) }),
		DropDraft: edits(func(ctx context.Context, c editor.Change) (versions.Outcome, error) {
			return versions.Outcome{}, w.DropDraft(ctx, c)
		}),
	}
}

// edits returns an endpoint for a function that changes a template.
func edits[Q any](f func(context.Context, Q) (versions.Outcome, error)) endpoint.Endpoint {
	return of(func(ctx context.Context, q Q) (any, error) {
		out, err := f(ctx, q)
		return edited(out), err
	})
}

func edited(o versions.Outcome) client.Edited {
	return client.Edited{Head: o.Head, Revision: o.Head.ModRev, Changes: o.Changes, More: o.More}
}
