// Package endpoint has one go-kit endpoint per operation of the template service,
// independent of the transport.
package endpoint

import (
	"context"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/store/gc"
	"github.com/orreryhq/orrery/templatesvc/internal/store/replication"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// Set has the endpoints of the service.
type Set struct {
	// Manifest takes a digest (string) and returns a manifest's JSON ([]byte).
	Manifest endpoint.Endpoint
	// Blob takes a SHA-256 (string) and returns an open *versions.Blob for the transport to
	// close.
	Blob endpoint.Endpoint
	// Row takes SHA-256s ([]string) and returns a versions.Row for the transport to close.
	Row endpoint.Endpoint
	// Suspect takes a SHA-256 (string). It verifies the blob again and replaces it if it is
	// damaged.
	Suspect endpoint.Endpoint
	// Rollback takes a RollbackRequest and returns a client.Edited.
	Rollback endpoint.Endpoint
	// Replicate takes a digest (string) and returns a client.Replicated.
	Replicate endpoint.Endpoint
	// Collect takes nothing and returns a gc.Report.
	Collect endpoint.Endpoint
	Held
	Management
	Artifacts
}

// RollbackRequest makes an older version the head.
type RollbackRequest struct {
	Ref    content.TemplateRef
	Digest string
	versions.Asked
}

// New returns the endpoints of a service, its keeper and its mirror.
func New(s *versions.Service, k *gc.Keeper, m *replication.Mirror) Set {
	return Set{
		Held:       NewHeld(s),
		Management: NewManagement(s),
		Collect:    func(ctx context.Context, _ any) (any, error) { return k.Now(ctx) },
		Manifest: func(ctx context.Context, request any) (any, error) {
			digest, ok := request.(string)
			if !ok {
				return nil, wrongType(request)
			}
			return s.ManifestBody(ctx, digest)
		},
		Blob: func(ctx context.Context, request any) (any, error) {
			sum, ok := request.(string)
			if !ok {
				return nil, wrongType(request)
			}
			return s.Blob(ctx, sum)
		},
		Row: func(ctx context.Context, request any) (any, error) {
			sums, ok := request.([]string)
			if !ok {
				return nil, wrongType(request)
			}
			return s.Row(ctx, sums)
		},
		Replicate: func(ctx context.Context, request any) (any, error) {
			digest, ok := request.(string)
			if !ok {
				return nil, wrongType(request)
			}
			id, err := m.Serve(ctx, digest)
			return client.Replicated{Store: id}, err
		},
		Suspect: func(ctx context.Context, request any) (any, error) {
			sum, ok := request.(string)
			if !ok {
				return nil, wrongType(request)
			}
			return struct{}{}, s.Blobs().Suspect(ctx, sum)
		},
		Rollback: func(ctx context.Context, request any) (any, error) {
			r, ok := request.(RollbackRequest)
			if !ok {
				return nil, wrongType(request)
			}
			if !r.Ref.Valid() {
				return nil, errs.New(errs.Invalid, "%q is not a template name", r.Ref)
			}
			head, err := s.Rollback(ctx, r.Ref, r.Digest, r.Asked)
			return client.Edited{Head: head, Revision: head.ModRev}, err
		},
	}
}

func wrongType(request any) error {
	return errs.New(errs.Internal, "an endpoint was called with a %T", request)
}
