package endpoint

import (
	"context"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// Held holds the endpoints by which replicas ask each other for what they have, and
// only that: asked for the rest, two would ask each other for ever.
type Held struct {
	// Held takes a SHA-256 (string) and gives a *template.Blob for the transport to close.
	Held endpoint.Endpoint
	// Recipe takes the SHA-256 of a large file (string) and gives a fleet.Content.
	Recipe endpoint.Endpoint
}

// NewHeld makes the endpoints of a service.
func NewHeld(s *template.Service) Held {
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
