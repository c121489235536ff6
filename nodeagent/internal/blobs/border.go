package blobs

import (
	"context"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
)

// border is a source whose limits are not the node's: Exhausted, as when its disk is full, is
// Unavailable here. No room on this node would help.
type border struct{ Source }

// Manifest is the source's.
func (b border) Manifest(ctx context.Context, digest string) (io.ReadCloser, error) {
	return crossed(b.Source.Manifest(ctx, digest))
}

// Blob is the source's.
func (b border) Blob(ctx context.Context, sha256 string) (io.ReadCloser, error) {
	return crossed(b.Source.Blob(ctx, sha256))
}

// Row is the source's.
func (b border) Row(ctx context.Context, sha256s []string) (io.ReadCloser, error) {
	return crossed(b.Source.Row(ctx, sha256s))
}

// Artifact is the source's.
func (b border) Artifact(ctx context.Context, sha256 string) (io.ReadCloser, error) {
	return crossed(b.Source.Artifact(ctx, sha256))
}

func crossed(body io.ReadCloser, err error) (io.ReadCloser, error) {
	if errs.Is(err, errs.Exhausted) {
		err = errs.As(errs.Unavailable, "blobs.source", err)
	}
	return body, err
}
