// Package bucket reads templates from an S3-compatible bucket: archives <group>/<name>.zip
// (or .tar, .tar.gz, .tar.zst), or trees of objects.
//
// Invariants: An incomplete listing is an error, never a shorter listing. An object is read
// only if its ETag is still that of the listing, so that versions are not mixed.
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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

const (
	// maxObjects is the maximum number of listed objects.
	maxObjects = 500_000
	// tries is how often a request is made if the server cannot answer.
	tries = 3
)

// object is an object of the bucket and its place in a template.
type object struct {
	key, etag string
	size      int64
	inside    string         // path in the template; "" for an archive
	format    archive.Format // only for an archive
}

// Fetch reads the templates below a source's prefix, unless the listing is unchanged. It
// returns Denied when the keys are refused, Unavailable when the server does not answer or
// an object changes while it is read, and Invalid when the content is no valid template.
func Fetch(ctx context.Context, r sources.Request) (*sources.Holding, error) {
	b, done, err := connect(r)
	if err != nil {
		return nil, err
	}
	objects, revision, err := b.list(ctx)
	if err != nil || revision == r.Seen {
		done()
		return nil, err
	}
	h := &sources.Holding{Revision: revision, Close: done}
	for ref, of := range objects {
		h.Templates = append(h.Templates, sources.Template{Ref: ref, Manifest: func(ctx context.Context, add sources.Add) (content.Manifest, error) {
			return b.manifest(ctx, of, add)
		}})
	}
	slices.SortFunc(h.Templates, func(a, b sources.Template) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	return h, nil
}

// bucket is a prefix in a bucket, and its client.
type bucket struct {
	client *minio.Client
	source content.TemplateSource
	prefix string // ends with a slash, unless it is ""
	spool  string
}

func connect(r sources.Request) (*bucket, func(), error) {
	c, done, err := s3client.Connect(s3client.Config{
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

// list assigns all objects to templates. The revision changes whenever an object changes.
func (b *bucket) list(ctx context.Context) (map[content.TemplateRef][]object, string, error) {
	by := map[content.TemplateRef][]object{}
	h := sha256.New()
	for o, err := range s3client.List(ctx, b.client, b.source.Bucket, b.prefix, "", maxObjects) {
		if err != nil {
			return nil, "", err
		}
		if strings.HasSuffix(o.Key, "/") {
			continue // a directory marker, which some tools write
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

// place returns the template that an object belongs to.
func (b *bucket) place(p string) (content.TemplateRef, object, bool) {
	if format := archive.FormatOf(p); format != "" && (b.source.Template == content.TemplateRef{}) {
		name := p[:strings.LastIndex(strings.ToLower(p), "."+ending(p, format))]
		if ref, inside, ok := sources.Place(b.source, name+"/archive"); ok && inside == "archive" {
			return ref, object{format: format}, true
		}
	}
	ref, inside, ok := sources.Place(b.source, p)
	return ref, object{inside: inside}, ok && inside != ""
}

// ending returns the extension of an archive's name.
func ending(p string, format archive.Format) string {
	switch ext := strings.ToLower(strings.TrimPrefix(path.Ext(p), ".")); ext {
	case "tgz", "tzst":
		return ext
	}
	return string(format)
}

// manifest reads a template from one archive or a tree of objects.
func (b *bucket) manifest(ctx context.Context, objects []object, add sources.Add) (content.Manifest, error) {
	var m content.Manifest
	limits := content.VersionLimits()
	for _, o := range objects {
		if o.format != "" && len(objects) > 1 {
			return m, errs.New(errs.Invalid, "%s is an archive, but the template also has other objects: keep either the archive or the tree", o.key)
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
		m.Entries = append(m.Entries, content.ManifestEntry{Path: o.inside, Mode: 0o644, Size: c.Size, SHA256: c.SHA256, Chunks: c.Chunks})
	}
	return m, nil
}

// body is the content of an object. It remembers the error of a read.
type body struct {
	*minio.Object
	err error
}

// open opens an object, provided that it has not changed since the listing.
func (b *bucket) open(ctx context.Context, o object) (*body, error) {
	var options minio.GetObjectOptions
	if err := options.SetMatchETag(o.etag); err != nil {
		return nil, errs.WrapAs(errs.Internal, "bucket.open", err)
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

// told returns the server's error, if there was one, and otherwise err.
func (r *body) told(err error) error {
	if err != nil && r.err != nil {
		return r.err
	}
	return err
}

// refusedBy converts a server's error about an object that it has listed.
func refusedBy(err error) error {
	told := s3client.ErrorOf(err)
	if errs.Is(told, errs.NotFound) || errs.Is(told, errs.Conflict) {
		return &errs.Error{Kind: errs.Unavailable, Message: "the bucket changed while it was read: it is read again", Err: err}
	}
	return told
}
