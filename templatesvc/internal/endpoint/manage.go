package endpoint

import (
	"context"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// Management holds the endpoints of templates as a whole, their versions and history.
type Management struct {
	// Create and Describe take a ManageRequest and give a client.Edited.
	Create, Describe endpoint.Endpoint
	// Delete and DeleteVersion take a ManageRequest and give nothing.
	Delete, DeleteVersion endpoint.Endpoint
	// History takes a ManageRequest and gives its []fleet.TemplateMove, oldest first.
	History endpoint.Endpoint
	// Diff takes a DiffRequest and gives a client.Difference.
	Diff endpoint.Endpoint
}

// ManageRequest is about one template.
type ManageRequest struct {
	Ref         fleet.TemplateRef
	Description template.Description
	// Digest is the version meant.
	Digest string
	template.Asked
}

// DiffRequest asks what differs between two versions; with Path of one file.
type DiffRequest struct{ From, To, Path string }

// NewManagement makes the endpoints of a service.
func NewManagement(s *template.Service) Management {
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

// managed is an endpoint for requests with a usable name.
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
