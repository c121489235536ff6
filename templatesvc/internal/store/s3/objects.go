// Package s3 stores a store's files as objects in an S3-compatible bucket.
//
//	<prefix><sum>/<form>-<size>-<token>           content, under a name that is used once
//	<prefix><sum>/<form>-<size>-<token>!<cycle>   mark: a collection has condemned it
//	<prefix><sum>/<form>-<size>-<token>!corrupt   mark: a replica read content with a wrong hash
//	<prefix>store-id/<token>                      the store's ID is the first of these
//
// A bucket has no rename, so a condemned object is never restored in place: its content is
// copied to a new name. An object that a replica has marked as corrupt is read last, and
// copied to a new name if another replica finds it valid. See package gc for why no publish
// loses a blob, and ADR 42.
//
// Invariants: A name is written at most once, even when an upload is retried. An object is
// removed before its marks. Only a collection removes objects. Downloads are verified while
// they arrive, kept in a cache of bounded size, and verified again by the reader. The
// server must list everything that was written before the listing began, as S3 does.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
	"github.com/orreryhq/orrery/templatesvc/internal/singleflight"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

const (
	// tries is how often a failed request is made in all.
	tries = 5
	// looks is how often a lookup is repeated because objects change meanwhile.
	looks = 3
	// downloads is the maximum number of concurrent downloads.
	downloads = 16
)

// Config is what a Medium needs.
type Config struct {
	// S3 describes the server. New sets Tries.
	S3 s3client.Config
	// Bucket must exist. Prefix is the prefix of all objects; "" uses the whole bucket.
	Bucket, Prefix string
	// Dir is the cache directory, and CacheBytes the maximum size of its files. Processes
	// that share the directory use about that much each.
	Dir        string
	CacheBytes int64
	// Pause is the first pause before a retry; it doubles each time. 0 means 200 ms.
	Pause time.Duration
}

// Medium is a blob.Medium in a bucket. It is safe for concurrent use.
type Medium struct {
	client         *minio.Client
	bucket, prefix string
	pause          time.Duration
	cache          *cache
	flights        *singleflight.Group

	mu sync.Mutex
	// unsound holds the objects whose content has a wrong hash.
	unsound map[string]struct{}
}

// New returns a Medium without making a request. done closes idle connections and releases
// the cache directory. New returns Invalid for an unusable endpoint and Unavailable for an
// unusable directory.
func New(cfg Config) (m *Medium, done func(), err error) {
	cfg.S3.Tries = 1 // a retry uses another name
	client, disconnect, err := s3client.Connect(cfg.S3)
	if err != nil {
		return nil, nil, err
	}
	m = &Medium{client: client, bucket: cfg.Bucket, pause: cmp.Or(cfg.Pause, 200*time.Millisecond), flights: singleflight.New(downloads), unsound: map[string]struct{}{}}
	if m.prefix = strings.Trim(cfg.Prefix, "/"); m.prefix != "" {
		m.prefix += "/"
	}
	if m.cache, err = openCache(cfg.Dir, cfg.CacheBytes); err != nil {
		disconnect()
		return nil, nil, err
	}
	return m, func() { disconnect(); m.cache.own.release() }, nil
}

// wait pauses before a retry. It returns false when ctx ends.
func (m *Medium) wait(ctx context.Context, failed int) bool {
	return pause.For(ctx, m.pause<<(failed-1))
}

func (m *Medium) again(ctx context.Context, do func() error) error {
	return s3client.Again(ctx, tries, m.pause, do)
}

// wrap adds to an error the setting to check.
func (m *Medium) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if errs.FieldOf(err) == "bucket" {
		return &errs.Error{Op: op, Kind: errs.Unavailable, Field: "blobs.s3.bucket", Err: err, Message: "the S3 server has no bucket " + m.bucket + ": make it, or correct blobs.s3.bucket"}
	}
	if errs.Is(err, errs.Denied) {
		return &errs.Error{Op: op, Kind: errs.Unavailable, Err: err, Message: "the S3 server refuses the keys of blobs.s3: they have to list, read, write and delete in bucket " + m.bucket}
	}
	return errs.Wrap(op, err)
}

// Has implements blob.Medium.
func (m *Medium) Has(ctx context.Context, f blob.File) (bool, error) {
	for range looks {
		all, err := m.names(ctx, f.Sum)
		if err != nil {
			return false, err
		}
		for _, o := range all {
			if !o.serves(f) {
				continue
			}
			if o.valid() {
				return true, nil
			}
			if err = m.rename(ctx, &o); err == nil {
				return true, nil
			}
			if !errors.Is(err, errUnsound) {
				break
			}
			err = nil
		}
		if err == nil {
			return false, nil
		}
		if !errs.Is(err, errs.NotFound) {
			return false, err
		}
	}
	return false, nil
}

// rename copies an object that is condemned, or wrongly marked as corrupt, to a new name.
// It returns NotFound when the object does not exist, and errUnsound when its content has a
// wrong hash.
func (m *Medium) rename(ctx context.Context, o *object) error {
	tmp, err := m.sound(ctx, o)
	if err != nil {
		return err
	}
	defer m.cache.discard(tmp)
	return m.put(ctx, o.File, o.Bytes, func() io.Reader { return io.NewSectionReader(tmp, 0, o.Bytes) })
}

// Write implements blob.Medium.
func (m *Medium) Write(ctx context.Context, f blob.File, b []byte) error {
	return m.put(ctx, f, int64(len(b)), func() io.Reader { return bytes.NewReader(b) })
}

// Take implements blob.Medium. It uploads large files in parts.
func (m *Medium) Take(ctx context.Context, f blob.File, spooled *os.File) error {
	fi, err := spooled.Stat()
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "objects.Take", err)
	}
	return m.put(ctx, f, fi.Size(), func() io.Reader { return io.NewSectionReader(spooled, 0, fi.Size()) })
}

// checked makes the server verify the checksum of an upload.
func checked() minio.PutObjectOptions {
	return minio.PutObjectOptions{SendContentMd5: true, DisableContentSha256: true}
}

func (m *Medium) put(ctx context.Context, f blob.File, size int64, from func() io.Reader) error {
	return m.wrap("objects.Write", m.again(ctx, func() error {
		_, err := m.client.PutObject(ctx, m.bucket, m.fresh(f), from(), size, checked())
		return s3client.ErrorOf(err)
	}))
}

// Flush implements blob.Medium. A server stores an upload durably before it answers.
func (m *Medium) Flush(context.Context) error { return nil }
