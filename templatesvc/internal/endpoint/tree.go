package endpoint

import (
	"context"
	"io"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/editor"
)

// Trees holds the endpoints that read in versions.
type Trees struct {
	// List takes a TreeRequest and gives []fleet.ManifestEntry.
	List endpoint.Endpoint
	// File takes a TreeRequest and gives an OpenFile for the transport to close.
	File endpoint.Endpoint
	// Search takes a TreeRequest and gives a client.Found.
	Search endpoint.Endpoint
	// Placeholders takes a TreeRequest and gives client.Placeholders.
	Placeholders endpoint.Endpoint
	// Archive takes a TreeRequest and gives a func(io.Writer) error.
	Archive endpoint.Endpoint
}

// TreeRequest asks about a version's files; each endpoint reads what concerns it.
type TreeRequest struct {
	Digest, Path string
	// Deep lists what is below a directory, not only what is in it.
	Deep bool
	// Text is what to search for, Most the number of places told.
	Text string
	Most int
	// Format is an archive's.
	Format archive.Format
	// Shown is who gets the definitions of variables with an archive; nil: nobody.
	Shown *fleet.Visibility
}

// OpenFile is a file of a version and its content.
type OpenFile struct {
	Entry   fleet.ManifestEntry
	Content io.ReadCloser
}

// NewTrees makes the endpoints of a reader.
func NewTrees(r *editor.Reader) Trees {
	return Trees{
		List: of(func(ctx context.Context, q TreeRequest) (any, error) {
			list, err := r.List(ctx, q.Digest, q.Path, q.Deep)
			for i := range list {
				list[i].Chunks = nil // thousands in a large file
			}
			return list, err
		}),
		File: of(func(ctx context.Context, q TreeRequest) (any, error) {
			e, content, err := r.Open(ctx, q.Digest, q.Path)
			return OpenFile{e, content}, err
		}),
		Search:       of(func(ctx context.Context, q TreeRequest) (any, error) { return r.Search(ctx, q.Digest, q.Text, q.Most) }),
		Placeholders: of(func(ctx context.Context, q TreeRequest) (any, error) { return r.Placeholders(ctx, q.Digest) }),
		Archive: of(func(ctx context.Context, q TreeRequest) (any, error) {
			return r.Archive(ctx, q.Digest, q.Path, q.Format, q.Shown)
		}),
	}
}

// of makes an endpoint of a function that takes one type of request.
func of[Q any](f func(context.Context, Q) (any, error)) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		q, ok := request.(Q)
		if !ok {
			return nil, wrongType(request)
		}
		return f(ctx, q)
	}
}
