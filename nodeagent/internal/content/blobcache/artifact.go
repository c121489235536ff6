package blobcache

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
)

// maxArtifact is the maximum size of an artifact of the catalog, in bytes.
const maxArtifact = 1 << 30

// Artifact returns the path of the file with an artifact of the catalog. It fetches a missing
// or corrupt file. Callers must not write to the file. It returns Exhausted if the disk is
// full, and Conflict if the catalog's URL serves other content.
func (c *Cache) Artifact(ctx context.Context, hash string) (string, error) {
	path, err := c.artifact(ctx, hash)
	if errs.Is(err, errs.Exhausted) && ctx.Err() == nil && c.freeDisk(maxArtifact) {
		path, err = c.artifact(ctx, hash)
	}
	if err == nil {
		c.touch(artifactDir, hash)
	}
	return path, err
}

func (c *Cache) artifact(ctx context.Context, hash string) (string, error) {
	return c.ensure(ctx, hash, func(ctx context.Context, path string) error {
		return c.download(ctx, download{hash: hash, limit: maxArtifact, path: path, open: c.source.Artifact})
	})
}
