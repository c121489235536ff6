package endpoint

import (
	"context"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// Management are the endpoints of templates, their versions and history.
type Management struct {
	// Create and Describe take a ManageRequest and return a client.Edited.
	Create, Describe endpoint.Endpoint
	// Delete and DeleteVersion take a ManageRequest and return nothing.
	Delete, DeleteVersion endpoint.Endpoint
	// History takes a ManageRequest and returns a []content.TemplateMove, oldest first.
	History endpoint.Endpoint
	// Diff takes a DiffRequest and returns a client.Difference.
	Diff endpoint.Endpoint
}

// ManageRequest is a request about one template.
type ManageRequest struct {
	Ref         content.TemplateRef
	Description versions.Description
	// Digest identifies the version.
	Digest string
	versions.Asked
}

// DiffRequest compares two versions, or only the file at Path.
type DiffRequest struct{ From, To, Path string }

// NewManagement returns the endpoints of a service.
func NewManagement(s *versions.Service) Management {
	return Management{
		Create: managed(func(ctx context.Context, r ManageRequest) (any, error) {
			head, err := s.Create(ctx, r.Ref, r.Description, r.Asked)
			return client.Edited{Head: head, Revision: head.ModRev}, err
		}),
		Describe: managed(func(ctx context.Context, r ManageRequest) (any, error) {
			head, err := s.Describe(ctx, r.Ref, r.Description, r.Asked)
			return client.Edited{Head: head, Revision: head.ModRev}, err
		}),
		Delete: managed(func(ctx context.Context, r ManageRequest) (any, error) {
			return struct{}{}, s.Delete(ctx, r.Ref, r.Asked)
		}),
		DeleteVersion: managed(func(ctx context.Context, r ManageRequest) (any, error) {
			return struct{}{}, s.DeleteVersion(ctx, r.Ref, r.Digest, r.Asked)
		}),
		History: managed(func(ctx context.Context, r ManageRequest) (any, error) {
			return s.History(ctx, r.Ref)
		}),
		Diff: func(ctx context.Context, request any) (any, error) {
			r, ok := request.(DiffRequest)
			if !ok {
				return nil, wrongType(request)
			}
			changes, more, err := s.Diff(ctx, r.From, r.To, r.Path)
			return client.Difference{Changes: changes, More: more}, err
		},
	}
}

// managed returns an endpoint that checks the template's name first.
func managed(do func(context.Context, ManageRequest) (any, error)) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		r, ok := request.(ManageRequest)
		if !ok {
			return nil, wrongType(request)
		}
		if !r.Ref.Valid() {
			return nil, errs.New(errs.Invalid, "%q is not a template name: letters, digits, _ . and -, at most 64 each", r.Ref)
		}
		return do(ctx, r)
	}
}
