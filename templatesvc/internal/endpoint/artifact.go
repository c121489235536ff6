package endpoint

import (
	"context"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/templatesvc/internal/catalog"
)

// Artifacts holds the endpoints of the catalog's artifacts.
type Artifacts struct {
	// Artifact takes a SHA-256 (string) and gives an open file (*os.File) for the transport to close.
	Artifact endpoint.Endpoint
	// Pin takes a URL (string) and gives a fleet.Content.
	Pin endpoint.Endpoint
}

// NewArtifacts makes the endpoints of a store of artifacts.
func NewArtifacts(s *catalog.Store) Artifacts {
	return Artifacts{
		Artifact: func(ctx context.Context, request any) (any, error) {
			sum, ok := request.(string)
			if !ok {
				return nil, wrongType(request)
			}
			f, err := s.Get(ctx, sum)
			if err != nil {
				return nil, err
			}
			return f, nil
		},
		Pin: func(ctx context.Context, request any) (any, error) {
			url, ok := request.(string)
			if !ok {
				return nil, wrongType(request)
			}
			return s.Pin(ctx, url)
		},
	}
}
