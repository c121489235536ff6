// Package versions manages the versions of templates, and the head of each template, which
// points to its current version.
//
// A version is a manifest, which is stored as a blob under its digest. A Publish first
// stores the blobs. Then one transaction records the version, the move of the head and the
// new head, by compare-and-swap. So readers see either the old version or the new one.
// Versions never change; the moves of a head are its history.
//
//	Begin ──▶ Add, Keep … ──▶ Commit: durable, then one transaction ──▶ Close
package versions

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// Config is what a Service needs; every field is required.
type Config struct {
	Store *store.Client
	Blobs *blob.Store
	// Replica is the name of this replica, which is recorded with its publishes.
	Replica string
	// Copy copies the content of a version that is about to be published to other disks,
	// and returns the number of disks that have it then.
	Copy func(ctx context.Context, digest string) int
	Now  func() time.Time
	Log  *slog.Logger
}

// Service publishes and serves template versions. It is safe for concurrent use, also by
// several replicas.
type Service struct {
	cfg    Config
	memory *store.Memory
}

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, memory: memoryOf(cfg, maxOperations)}
}

// head returns the current head, or a zero head with revision 0 when there is none.
func (s *Service) head(ctx context.Context, ref content.TemplateRef) (content.TemplateHead, error) {
	head, err := store.Get(ctx, s.cfg.Store, keys.TemplateHead(ref))
	if errs.Is(err, errs.NotFound) {
		return content.TemplateHead{}, nil
	}
	return head, err
}

// existing returns the current head, or NotFound.
func (s *Service) existing(ctx context.Context, ref content.TemplateRef) (content.TemplateHead, error) {
	head, err := s.head(ctx, ref)
	if err == nil && head.ModRev == 0 {
		err = errs.New(errs.NotFound, "template %s does not exist: create it first", ref)
	}
	return head, err
}

// Head returns a template's head. It returns NotFound when the template does not exist.
func (s *Service) Head(ctx context.Context, ref content.TemplateRef) (content.TemplateHead, error) {
	head, err := s.existing(ctx, ref)
	return head, errs.Wrap("template.Head", err)
}

// ManifestBody returns a manifest in the form in which it was published, verified by its
// digest. It returns NotFound when no source has it.
func (s *Service) ManifestBody(ctx context.Context, digest string) ([]byte, error) {
	return s.cfg.Blobs.ReadAll(ctx, digest)
}

// Manifest returns a version's manifest. It returns the errors of ManifestBody and
// content.DecodeManifest.
func (s *Service) Manifest(ctx context.Context, digest string) (content.Manifest, error) {
	body, err := s.ManifestBody(ctx, digest)
	if err != nil {
		return content.Manifest{}, errs.Wrap("template.Manifest", err)
	}
	return content.DecodeManifest(body, digest, content.VersionLimits())
}

// Stored reports whether all content of a file is stored here. It may still be collected;
// only Publish.Keep prevents that.
func (s *Service) Stored(ctx context.Context, c content.Content) (bool, error) {
	for _, b := range c.Blobs() {
		if there, err := s.cfg.Blobs.Has(ctx, b.SHA256, b.Size); !there || err != nil {
			return false, errs.Wrap("template.Stored", err)
		}
	}
	return true, nil
}

// Blobs returns the store of all content.
func (s *Service) Blobs() *blob.Store { return s.cfg.Blobs }

// Open opens the content of a file. It returns NotFound when a part of it is missing. The
// caller closes it.
func (s *Service) Open(ctx context.Context, c content.Content) (io.ReadCloser, error) {
	return s.cfg.Blobs.Join(ctx, c)
}
