package templatesvc

import (
	"context"
	"io"
	"path/filepath"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/blob/objects"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
	"github.com/orreryhq/orrery/templatesvc/internal/s3"
)

// Bucket is where file contents are kept in an S3-compatible server.
type Bucket struct {
	// Endpoint is the server's URL: scheme, host and port. Bucket has to exist there; Prefix
	// begins all names in it.
	Endpoint, Bucket, Prefix string
	// Region may be empty; PathStyle puts the bucket's name into the path.
	Region    string
	PathStyle bool
	// AccessKey and SecretKey may list, read, write and delete in it.
	AccessKey, SecretKey string
	// CacheBytes bounds what is kept of it on the disk.
	CacheBytes int64
}

// content is where file contents lie.
type content struct {
	blobs *blob.Store
	// before is the directory they lay in before there was a bucket; nil without one.
	before *blob.Store
	done   func()
}

// openContent opens the directory of blobs, or the bucket in its place. The bucket is not
// asked yet: a replica starts while it is away.
func openContent(cfg Config) (c content, err error) {
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
	medium, done, err := objects.New(objects.Config{
		S3: s3.Config{
			Endpoint: b.Endpoint, Region: b.Region, PathStyle: b.PathStyle, AccessKey: b.AccessKey, SecretKey: b.SecretKey,
			Dialer: origin.Dialer{Egress: egress.Policy{Operator: true}},
		},
		Bucket: b.Bucket, Prefix: b.Prefix, Dir: filepath.Join(cfg.BlobDir, "cache"), CacheBytes: b.CacheBytes,
	})
	if err != nil {
		// Without the endpoint itself, which may hold keys.
		return c, &errs.Error{Op: "templatesvc.New", Kind: errs.Invalid, Field: "blobs.s3.endpoint", Err: err, Message: errs.MessageOf(err)}
	}
	c.before, c.done = dir, done
	c.blobs, err = blob.New(cfg.BlobDir, medium)
	return c, err
}

// held is what a store has itself.
type held struct{ *blob.Store }

// Blob implements blob.Elsewhere. A large file has a recipe there.
func (h held) Blob(ctx context.Context, sum string) (io.ReadCloser, error) {
	return h.OpenHere(ctx, sum)
}

// Recipe implements blob.Elsewhere.
func (h held) Recipe(ctx context.Context, sum string) (fleet.Content, error) {
	return h.RecipeHere(ctx, sum)
}

// inOrder asks one after the other.
type inOrder []blob.Elsewhere

// Blob implements blob.Elsewhere.
func (o inOrder) Blob(ctx context.Context, sum string) (r io.ReadCloser, err error) {
	for _, e := range o {
		if r, err = e.Blob(ctx, sum); !errs.Is(err, errs.NotFound) {
			break
		}
	}
	return r, err
}

// Recipe implements blob.Elsewhere.
func (o inOrder) Recipe(ctx context.Context, sum string) (c fleet.Content, err error) {
	for _, e := range o {
		if c, err = e.Recipe(ctx, sum); !errs.Is(err, errs.NotFound) {
			break
		}
	}
	return c, err
}
