package endpoint

import (
	"context"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/templatesvc/internal/artifacts"
)

// Artifacts are the endpoints of the catalog's artifacts.
type Artifacts struct {
	// Artifact takes a SHA-256 (string) and returns an open file (*os.File) for the
	// transport to close.
	Artifact endpoint.Endpoint
	// Pin takes a URL (string) and returns a content.Content.
	Pin endpoint.Endpoint
}

// NewArtifacts returns the endpoints of an artifact store.
func NewArtifacts(s *artifacts.Store) Artifacts {
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
