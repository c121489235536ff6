package blobcache

import (
	"context"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
)

// Source provides content. The cache verifies what it sends. Exhausted means that a limit of
// the source is reached; the cache returns it as Unavailable.
type Source interface {
	// Manifest opens a template version's manifest by its digest. It returns NotFound if no
	// source has it.
	Manifest(ctx context.Context, digest string) (io.ReadCloser, error)
	// Blob opens content by its hash; the caller closes it. It returns NotFound if no source
	// has it.
	Blob(ctx context.Context, sha256 string) (io.ReadCloser, error)
	// Row opens several blobs as one stream: the first, and as many of the following ones as
	// are available. It returns NotFound also if the source can only send single blobs.
	Row(ctx context.Context, sha256s []string) (io.ReadCloser, error)
	// Suspect reports that content did not match its hash.
	Suspect(ctx context.Context, sha256 string) error

	// Artifact opens an artifact of the catalog by its hash; the caller closes it. It returns
	// Conflict, with both hashes, if the catalog's URL serves other content.
	Artifact(ctx context.Context, sha256 string) (io.ReadCloser, error)
}

// asUnavailable turns Exhausted of a source into Unavailable. Exhausted would mean that this
// node's disk is full, and the cache would evict content without effect.
func asUnavailable(body io.ReadCloser, err error) (io.ReadCloser, error) {
	if errs.Is(err, errs.Exhausted) {
		err = errs.WrapAs(errs.Unavailable, "blobcache.source", err)
	}
	return body, err
}
