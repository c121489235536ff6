// Package bucket brings templates from a prefix of an S3-compatible bucket: archives
// <group>/<name>.zip (or .tar, .tar.gz, .tar.zst), or trees of objects.
//
// Invariants: a listing that breaks off is an error, never a shorter listing; an object
// is read only as it was listed, so that what changes meanwhile is not mixed.
package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
	"github.com/orreryhq/orrery/templatesvc/internal/s3"
)

const (
	// maxObjects bounds what is listed.
	maxObjects = 500_000
	// tries is how often a request is made that a server could not answer.
	tries = 3
)

// object is one of the bucket, and where it belongs.
type object struct {
	key, etag string
	size      int64
	inside    string         // its path in the template; "" for an archive
	format    archive.Format // of an archive
}

// Fetch brings the templates below a source's prefix, unless nothing in the listing
// changed. Denied when the keys are refused, Unavailable when the server does not answer
// or an object changed while it was read, Invalid when a template holds what it cannot.
func Fetch(ctx context.Context, r origin.Request) (*origin.Holding, error) {
	b, done, err := connect(r)
	if err != nil {
		return nil, err
	}
	objects, revision, err := b.list(ctx)
	if err != nil || revision == r.Seen {
		done()
		return nil, err
	}
	h := &origin.Holding{Revision: revision, Close: done}
	for ref, of := range objects {
		h.Templates = append(h.Templates, origin.Template{Ref: ref, Manifest: func(ctx context.Context, add origin.Add) (fleet.Manifest, error) {
			return b.manifest(ctx, of, add)
		}})
	}
	slices.SortFunc(h.Templates, func(a, b origin.Template) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	return h, nil
}

// bucket is a prefix and how to reach it.
type bucket struct {
	client *minio.Client
	source fleet.TemplateSource
	prefix string // with its slash
	spool  string
}

func connect(r origin.Request) (*bucket, func(), error) {
	c, done, err := s3.Connect(s3.Config{
		Endpoint: r.Source.URL, Region: r.Source.Region, PathStyle: r.Source.PathStyle, Tries: tries, Dialer: r.Dialer,
		AccessKey: r.Credentials.AccessKey, SecretKey: r.Credentials.SecretKey,
	})
	if err != nil {
		return nil, nil, err
	}
	b := &bucket{client: c, source: r.Source, spool: r.Spool}
	if b.prefix = strings.TrimSuffix(r.Source.Prefix, "/"); b.prefix != "" {
		b.prefix += "/"
	}
	return b, done, nil
}

// list sorts all objects into templates. The revision changes with any of them.
func (b *bucket) list(ctx context.Context) (map[fleet.TemplateRef][]object, string, error) {
	by := map[fleet.TemplateRef][]object{}
	h := sha256.New()
	for o, err := range s3.List(ctx, b.client, b.source.Bucket, b.prefix, "", maxObjects) {
		if err != nil {
			return nil, "", err
		}
		if strings.HasSuffix(o.Key, "/") {
			continue // a directory, as some tools write it
		}
		ref, one, ok := b.place(strings.TrimPrefix(o.Key, b.prefix))
		if !ok {
			continue
		}
		one.key, one.etag, one.size = o.Key, o.ETag, o.Size
		by[ref] = append(by[ref], one)
		_, _ = fmt.Fprintf(h, "%q %s %d\n", o.Key, o.ETag, o.Size) // never fails
	}
	return by, hex.EncodeToString(h.Sum(nil)), nil
}

// place is where an object belongs.
func (b *bucket) place(p string) (fleet.TemplateRef, object, bool) {
	if format := archive.FormatOf(p); format != "" && (b.source.Template == fleet.TemplateRef{}) {
		name := p[:strings.LastIndex(strings.ToLower(p), "."+ending(p, format))]
		if ref, inside, ok := origin.Place(b.source, name+"/archive"); ok && inside == "archive" {
			return ref, object{format: format}, true
		}
	}
	ref, inside, ok := origin.Place(b.source, p)
	return ref, object{inside: inside}, ok && inside != ""
}

// ending is the part of a name that tells its format.
func ending(p string, format archive.Format) string {
	switch ext := strings.ToLower(strings.TrimPrefix(path.Ext(p), ".")); ext {
	case "tgz", "tzst":
		return ext
	}
	return string(format)
}

// manifest reads a template: one archive, or a tree.
func (b *bucket) manifest(ctx context.Context, objects []object, add origin.Add) (fleet.Manifest, error) {
	var m fleet.Manifest
	limits := fleet.VersionLimits()
	for _, o := range objects {
		if o.format != "" && len(objects) > 1 {
			return m, errs.New(errs.Invalid, "%s stands beside other objects of the same template: keep the archive or the tree", o.key)
		}
		r, err := b.open(ctx, o)
		if err != nil {
			return m, err
		}
		if o.format != "" {
			m, err = archive.Collect(ctx, r, archive.Options{Format: o.format, Limits: archive.DefaultLimits(), Spool: b.spool}, add)
			return m, errors.Join(r.told(err), r.Close())
		}
		c, err := add(r, limits.FileBytes)
		if err = errors.Join(r.told(err), r.Close()); err != nil {
			return m, err
		}
		m.Entries = append(m.Entries, fleet.ManifestEntry{Path: o.inside, Mode: 0o644, Size: c.Size, SHA256: c.SHA256, Chunks: c.Chunks})
	}
	return m, nil
}

// body is an object's content, which remembers how reading it failed.
type body struct {
	*minio.Object
	err error
}

// open reads an object as it was listed.
func (b *bucket) open(ctx context.Context, o object) (*body, error) {
	var options minio.GetObjectOptions
	if err := options.SetMatchETag(o.etag); err != nil {
		return nil, errs.As(errs.Internal, "bucket.open", err)
	}
	r, err := b.client.GetObject(ctx, b.source.Bucket, o.key, options)
	if err != nil {
		return nil, refusedBy(err)
	}
	return &body{Object: r}, nil
}

// Read implements io.Reader.
func (r *body) Read(p []byte) (int, error) {
	n, err := r.Object.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = refusedBy(err)
		return n, r.err
	}
	return n, err
}

// told is the server's error, if there was one, else err.
func (r *body) told(err error) error {
	if err != nil && r.err != nil {
		return r.err
	}
	return err
}

// refusedBy says what a server's refusal of an object that it listed means.
func refusedBy(err error) error {
	told := s3.Told(err)
	if errs.Is(told, errs.NotFound) || errs.Is(told, errs.Conflict) {
		return &errs.Error{Kind: errs.Unavailable, Message: "the bucket changed while it was read: it is read again", Err: err}
	}
	return told
}
