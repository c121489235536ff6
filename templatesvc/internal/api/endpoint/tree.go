package endpoint

import (
	"context"
	"io"

	"github.com/go-kit/kit/endpoint"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/edit/editor"
)

// Trees are the endpoints that read versions.
type Trees struct {
	// List takes a TreeRequest and returns []content.ManifestEntry.
	List endpoint.Endpoint
	// File takes a TreeRequest and returns an OpenFile for the transport to close.
	File endpoint.Endpoint
	// Search takes a TreeRequest and returns a client.Found.
	Search endpoint.Endpoint
	// Placeholders takes a TreeRequest and returns client.Placeholders.
	Placeholders endpoint.Endpoint
	// Archive takes a TreeRequest and returns a func(io.Writer) error.
	Archive endpoint.Endpoint
}

// TreeRequest is a request about a version's files. Each endpoint uses some of the fields.
type TreeRequest struct {
	Digest, Path string
	// Deep lists everything below a directory.
	Deep bool
	// Text is the text to search for, and Most the maximum number of matches.
	Text string
	Most int
	// Format is the format of an archive.
	Format archive.Format
	// Shown is the visibility of the variable definitions in an archive; nil omits them.
	Shown *content.Visibility
}

// OpenFile is a file of a version and its content.
type OpenFile struct {
	Entry   content.ManifestEntry
	Content io.ReadCloser
}

// NewTrees returns the endpoints of a reader.
func NewTrees(r *editor.Reader) Trees {
	return Trees{
		List: of(func(ctx context.Context, q TreeRequest) (any, error) {
			list, err := r.List(ctx, q.Digest, q.Path, q.Deep)
			for i := range list {
				list[i].Chunks = nil // large files may have thousands
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

// of returns an endpoint for a function with one type of request.
func of[Q any](f func(context.Context, Q) (any, error)) endpoint.Endpoint {
	return func(ctx context.Context, request any) (any, error) {
		q, ok := request.(Q)
		if !ok {
			return nil, wrongType(request)
		}
		return f(ctx, q)
	}
}
