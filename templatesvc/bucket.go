package templatesvc

import (
	"context"
	"io"
	"path/filepath"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/store/s3"
)

// Bucket describes the S3 bucket for file contents.
type Bucket struct {
	// Endpoint is the URL of the server: scheme, host and port. Bucket must exist there.
	// Prefix is the prefix of all objects.
	Endpoint, Bucket, Prefix string
	// Region may be empty. PathStyle puts the bucket's name into the path.
	Region    string
	PathStyle bool
	// AccessKey and SecretKey need permission to list, read, write and delete in the
	// bucket.
	AccessKey, SecretKey string
	// CacheBytes is the maximum size of the cache on the disk.
	CacheBytes int64
}

// body is the store of file contents.
type body struct {
	blobs *blob.Store
	// before is the local directory, which may still hold content from before a bucket was
	// configured; nil without a bucket.
	before *blob.Store
	done   func()
}

// openContent opens the blob directory, or the bucket if one is configured. It makes no
// request, so that a replica can start while the bucket is unavailable.
func openContent(cfg Config) (c body, err error) {
	c.done = func() {}
	dir, err := blob.Open(cfg.BlobDir)
	if err != nil {
		return c, unusable("blobs.dir", cfg.BlobDir, err)
	}
	if cfg.Bucket == nil {
		c.blobs = dir
		return c, nil
	}
	b := cfg.Bucket
	medium, done, err := s3.New(s3.Config{
		S3: s3client.Config{
			Endpoint: b.Endpoint, Region: b.Region, PathStyle: b.PathStyle, AccessKey: b.AccessKey, SecretKey: b.SecretKey,
			Dialer: sources.Dialer{Egress: egress.Policy{Operator: true}},
		},
		Bucket: b.Bucket, Prefix: b.Prefix, Dir: filepath.Join(cfg.BlobDir, "cache"), CacheBytes: b.CacheBytes,
	})
	if err != nil {
		// Omit the endpoint, which may contain keys.
		return c, &errs.Error{Op: "templatesvc.New", Kind: errs.Invalid, Field: "blobs.s3.endpoint", Err: err, Message: errs.MessageOf(err)}
	}
	c.before, c.done = dir, done
	c.blobs, err = blob.New(cfg.BlobDir, medium)
	return c, err
}

// localFirst asks a local store before another source. It does not join large files of the
// store, because Recipe returns their chunks.
type localFirst struct {
	local *blob.Store
	blob.Elsewhere
}

// Blob implements blob.Elsewhere.
func (l localFirst) Blob(ctx context.Context, sum string) (io.ReadCloser, error) {
	r, err := l.local.OpenHere(ctx, sum)
	if errs.Is(err, errs.NotFound) {
		return l.Elsewhere.Blob(ctx, sum)
	}
	return r, err
}

// Recipe implements blob.Elsewhere.
func (l localFirst) Recipe(ctx context.Context, sum string) (content.Content, error) {
	c, err := l.local.RecipeHere(ctx, sum)
	if errs.Is(err, errs.NotFound) {
		return l.Elsewhere.Recipe(ctx, sum)
	}
	return c, err
}
