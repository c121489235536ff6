package blobs

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
)

// maxArtifact is the largest artifact of the catalog.
const maxArtifact = 1 << 30

// Artifact is the file that holds an artifact of the catalog, fetched if it is missing
// or damaged. Nobody may write to it. Exhausted when the disk is full, Conflict when
// there is something else where the catalog says it is.
func (c *Cache) Artifact(ctx context.Context, hash string) (string, error) {
	path, err := c.artifact(ctx, hash)
	if errs.Is(err, errs.Exhausted) && ctx.Err() == nil && c.free(maxArtifact) {
		path, err = c.artifact(ctx, hash)
	}
	if err == nil {
		c.usedArtifact(hash)
	}
	return path, err
}

func (c *Cache) artifact(ctx context.Context, hash string) (string, error) {
	return c.stand(ctx, hash, c.path, func(ctx context.Context, path string) error {
		return c.download(ctx, download{hash: hash, limit: maxArtifact, path: path, open: c.source.Artifact})
	})
}
