// Package template is the service behind the API: versions of templates, and
// the head that moves between them.
//
// A version is a manifest, itself stored as a blob under its digest. Blobs come
// first, then one transaction records the version and moves the head by
// compare-and-swap: a reader sees the old version or the new one, never half of
// each. Versions are never changed.
package template

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
)

// Service publishes and serves template versions. It is safe for concurrent use,
// also beside other replicas.
type Service struct {
	store *store.Client
	blobs *blob.Store
	now   func() time.Time
	log   *slog.Logger
}

// New makes a service over a store and a blob directory.
func New(c *store.Client, blobs *blob.Store, now func() time.Time, log *slog.Logger) *Service {
	return &Service{store: c, blobs: blobs, now: now, log: log}
}

// Provenance says where a version comes from.
type Provenance struct{ Author, Message string }

// tries bounds how often a head that moved under us is looked at anew.
const tries = 5

// PublishSource makes a directory's content the head of its template, unless
// the directory has not changed since it was last published: then a head that was
// rolled back stays. The manifest's blobs must be stored already. published is
// false when nothing changed.
func (s *Service) PublishSource(ctx context.Context, ref fleet.TemplateRef, m fleet.Manifest, p Provenance) (head fleet.TemplateHead, published bool, err error) {
	body, digest, err := Canonical(m)
	if err != nil {
		return head, false, errs.Wrap("template.Publish", err)
	}
	if _, _, err := s.blobs.Put(bytes.NewReader(body), int64(len(body))); err != nil {
		return head, false, errs.Wrap("template.Publish", err)
	}
	for range tries {
		head, err = s.head(ctx, ref)
		if err != nil {
			return head, false, errs.Wrap("template.Publish", err)
		}
		if head.SourceDigest == digest {
			return head, false, nil
		}
		next := fleet.TemplateHead{TemplateRef: ref, Digest: digest, SourceDigest: digest, UpdatedAt: s.now().UTC()}
		_, next.SizeBytes = sizeOf(m)
		var writes []store.Write
		if writes, err = s.versionWrites(ctx, ref, head, digest, m, p); err != nil {
			return head, false, errs.Wrap("template.Publish", err)
		}
		writes = append(writes, store.Replace(store.TemplateHeadKey(ref), next, head.ModRev))
		var rev int64
		rev, err = s.store.Commit(ctx, store.Txn{Writes: writes})
		if err == nil {
			next.SetRev(rev, rev)
			s.log.Info("template published", "template", ref.String(), "digest", digest, "files", len(m.Entries))
			return next, true, nil
		}
		if !moved(err) {
			break
		}
	}
	return head, false, errs.Wrap("template.Publish", err)
}

func moved(err error) bool { return errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists) }

// head is the current head; a zero one with revision 0 when there is none.
func (s *Service) head(ctx context.Context, ref fleet.TemplateRef) (fleet.TemplateHead, error) {
	head, err := store.Get(ctx, s.store, store.TemplateHeadKey(ref))
	if errs.Is(err, errs.NotFound) {
		return fleet.TemplateHead{}, nil
	}
	return head, err
}

// versionWrites records the version unless the same content was published before.
func (s *Service) versionWrites(ctx context.Context, ref fleet.TemplateRef, head fleet.TemplateHead, digest string, m fleet.Manifest, p Provenance) ([]store.Write, error) {
	key := store.TemplateVersionKey(ref, digest)
	_, err := store.Get(ctx, s.store, key)
	if err == nil {
		return nil, nil
	}
	if !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	v := fleet.TemplateVersion{
		TemplateRef: ref, Digest: digest, Parent: head.Digest,
		Author: p.Author, Message: p.Message, CreatedAt: s.now().UTC(),
	}
	v.Files, v.SizeBytes = sizeOf(m)
	return []store.Write{store.Create(key, v)}, nil
}

// sizeOf is how many files a manifest has and what they hold.
func sizeOf(m fleet.Manifest) (files int, bytes int64) {
	for _, e := range m.Entries {
		if e.Kind == fleet.FileRegular {
			files++
			bytes += e.Size
		}
	}
	return files, bytes
}

// Retract removes a template's head because its directory is gone; its versions stay.
func (s *Service) Retract(ctx context.Context, ref fleet.TemplateRef) error {
	head, err := s.head(ctx, ref)
	if err != nil || head.ModRev == 0 {
		return errs.Wrap("template.Retract", err)
	}
	_, err = s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(store.TemplateHeadKey(ref), head.ModRev)}})
	if err == nil {
		s.log.Info("template removed, its directory is gone", "template", ref.String())
	}
	return errs.Wrap("template.Retract", err)
}

// Rollback moves the head to an older version: the one named by digest, or the
// head's parent when digest is empty. The source directory stays as it is and is
// not published again until it changes.
func (s *Service) Rollback(ctx context.Context, ref fleet.TemplateRef, digest, author string) (fleet.TemplateHead, error) {
	head, err := store.Get(ctx, s.store, store.TemplateHeadKey(ref))
	if errs.Is(err, errs.NotFound) {
		return head, errs.New(errs.NotFound, "template %s does not exist", ref)
	}
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	if digest == "" {
		if digest, err = s.previous(ctx, ref, head); err != nil {
			return head, err
		}
	}
	version := store.TemplateVersionKey(ref, digest)
	to, err := store.Get(ctx, s.store, version)
	if errs.Is(err, errs.NotFound) {
		return head, errs.New(errs.NotFound, "template %s has no version %s: list its versions", ref, digest)
	}
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	next := head
	next.Digest, next.SizeBytes, next.UpdatedAt = digest, to.SizeBytes, s.now().UTC()
	rev, err := s.store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Exists(version)},
		Writes: []store.Write{store.Replace(store.TemplateHeadKey(ref), next, head.ModRev)},
	})
	if err != nil {
		return head, errs.Wrap("template.Rollback", err)
	}
	next.SetRev(head.CreateRev, rev)
	s.log.Info("template rolled back", "template", ref.String(), "from", head.Digest, "to", digest, "author", author)
	return next, nil
}

func (s *Service) previous(ctx context.Context, ref fleet.TemplateRef, head fleet.TemplateHead) (string, error) {
	v, err := store.Get(ctx, s.store, store.TemplateVersionKey(ref, head.Digest))
	if err != nil {
		return "", errs.Wrap("template.Rollback", err)
	}
	if v.Parent == "" {
		return "", errs.New(errs.Conflict, "template %s has no version before %s", ref, head.Digest)
	}
	return v.Parent, nil
}

// ManifestBody is a version's manifest as JSON, checked against its digest.
func (s *Service) ManifestBody(digest string) ([]byte, error) { return s.blobs.ReadAll(digest) }

// Blobs is where file contents lie.
func (s *Service) Blobs() *blob.Store { return s.blobs }

// Refs are the templates that have a head.
func (s *Service) Refs(ctx context.Context) ([]fleet.TemplateRef, error) {
	heads, _, err := store.List(ctx, s.store, store.TemplateHeads())
	if err != nil {
		return nil, errs.Wrap("template.Refs", err)
	}
	refs := make([]fleet.TemplateRef, 0, len(heads))
	for _, h := range heads {
		refs = append(refs, h.TemplateRef)
	}
	return refs, nil
}
