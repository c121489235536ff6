package endpoint

import (
	"context"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// Held are the endpoints with which replicas ask each other for content. They look only in
// the replica's own store. Otherwise two replicas could ask each other for ever.
type Held struct {
	// Held takes a SHA-256 (string) and returns a *versions.Blob for the transport to
	// close.
	Held endpoint.Endpoint
	// Recipe takes the SHA-256 of a large file (string) and returns a content.Content.
	Recipe endpoint.Endpoint
}

// NewHeld returns the endpoints of a service.
func NewHeld(s *versions.Service) Held {
	return Held{
		Held: func(ctx context.Context, request any) (any, error) {
			sum, ok := request.(string)
			if !ok {
				return nil, wrongType(request)
			}
			return s.Held(ctx, sum)
		},
		Recipe: func(ctx context.Context, request any) (any, error) {
			sum, ok := request.(string)
			if !ok {
				return nil, wrongType(request)
			}
			return s.Blobs().RecipeHere(ctx, sum)
		},
	}
}
