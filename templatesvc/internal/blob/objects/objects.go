// Package objects keeps a store's files as objects of an S3-compatible bucket.
//
//	<prefix><sum>/<form>-<size>-<token>           content, under a name that is used once
//	<prefix><sum>/<form>-<size>-<token>!<cycle>   a collection has condemned it
//	<prefix><sum>/<form>-<size>-<token>!corrupt   a replica found that it does not have its hash
//	<prefix>store-id/<token>                      names the bucket's part, the first of them
//
// A bucket has no rename, so nothing is ever taken back: a condemned name stays so, and
// whoever wants its content gives it another name. Nor is any replica believed that an
// object is corrupt: it is only read last, and gets another name too when it is sound. See
// package collect for why no publish loses a blob, and ADR 42.
//
// Invariants: a name is written at most once, also when an upload is tried again; it goes
// before what is said of it does; only a collection removes. What is read is verified as it
// comes, kept in a directory of bounded size, and verified there by whoever reads it. The
// server has to list what was written before the listing began, as S3 does.
package objects

import (
	"bytes"
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
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/flight"
	"github.com/orreryhq/orrery/templatesvc/internal/s3"
)

const (
	// tries is how often a request is made that the server cannot answer.
	tries = 5
	// looks is how often a content is looked for whose names change meanwhile.
	looks = 3
	// downloads is how many objects are read at once.
	downloads = 16
)

// Config is what a Medium needs.
type Config struct {
	// S3 is the server; Tries is set here.
	S3 s3.Config
	// Bucket has to exist. Prefix begins every name in it; "" is all of it.
	Bucket, Prefix string
	// Dir is a directory for what was read, at most CacheBytes of it on the disk. Processes
	// that share it keep each about so much there.
	Dir        string
	CacheBytes int64
	// Pause is waited before a request is made again; it doubles. 0: 200 ms.
	Pause time.Duration
}

// Medium is a part of a bucket. It is safe for concurrent use; see blob.Medium.
type Medium struct {
	client         *minio.Client
	bucket, prefix string
	pause          time.Duration
	cache          *cache
	flights        *flight.Group

	mu sync.Mutex
	// unsound are objects that did not have their hash.
	unsound map[string]struct{}
}

// New makes a medium; nothing is asked yet. done closes its idle connections and gives back
// the directory. Invalid when the endpoint cannot be used, Unavailable when the directory
// cannot.
func New(cfg Config) (m *Medium, done func(), err error) {
	cfg.S3.Tries = 1 // another try is another name
	client, disconnect, err := s3.Connect(cfg.S3)
	if err != nil {
		return nil, nil, err
	}
	m = &Medium{client: client, bucket: cfg.Bucket, pause: cfg.Pause, flights: flight.New(downloads), unsound: map[string]struct{}{}}
	if m.pause == 0 {
		m.pause = 200 * time.Millisecond
	}
	if m.prefix = strings.Trim(cfg.Prefix, "/"); m.prefix != "" {
		m.prefix += "/"
	}
	if m.cache, err = openCache(cfg.Dir, cfg.CacheBytes); err != nil {
		disconnect()
		return nil, nil, err
	}
	return m, func() { disconnect(); m.cache.own.release() }, nil
}

// wait pauses before another try; false when ctx ends.
func (m *Medium) wait(ctx context.Context, failed int) bool {
	return pause.For(ctx, m.pause<<(failed-1))
}

func (m *Medium) again(ctx context.Context, do func() error) error {
	return s3.Again(ctx, tries, m.pause, do)
}

// told names what failed, with the setting to look at.
func (m *Medium) told(op string, err error) error {
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
			if o.standing() {
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

// rename gives the content of an object another name: of one that was condemned, or is
// said to be corrupt and is not. NotFound when the object is gone, errUnsound when it
// does not have its hash.
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

// Take implements blob.Medium. Large files go in parts.
func (m *Medium) Take(ctx context.Context, f blob.File, spooled *os.File) error {
	fi, err := spooled.Stat()
	if err != nil {
		return errs.As(errs.Unavailable, "objects.Take", err)
	}
	return m.put(ctx, f, fi.Size(), func() io.Reader { return io.NewSectionReader(spooled, 0, fi.Size()) })
}

// checked has the server refuse what was damaged on the way.
func checked() minio.PutObjectOptions {
	return minio.PutObjectOptions{SendContentMd5: true, DisableContentSha256: true}
}

func (m *Medium) put(ctx context.Context, f blob.File, size int64, from func() io.Reader) error {
	return m.told("objects.Write", m.again(ctx, func() error {
		_, err := m.client.PutObject(ctx, m.bucket, m.fresh(f), from(), size, checked())
		return s3.Told(err)
	}))
}

// Flush implements blob.Medium: what a server has taken, it keeps.
func (m *Medium) Flush(context.Context) error { return nil }
