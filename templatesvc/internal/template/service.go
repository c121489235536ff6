// Package template is the service behind the API: versions of templates, and
// the head that moves between them.
//
// A version is a manifest, itself stored as a blob under its digest. Blobs come
// first, under a publish that says so, then one transaction records the version, the
// head's move and the new head by compare-and-swap: a reader sees the old version or
// the new one, never half of each. Versions are never changed; the moves of a head are
// its history.
//
//	Begin ──▶ Add, Keep … ──▶ Commit: durable, then one transaction ──▶ Close
package template

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/vault"
)

// Config is what a Service needs; every field is required.
type Config struct {
	Store *store.Client
	Vault *vault.Vault
	// Replica is whose publishes these are.
	Replica string
	// Copy has a version that is about to be published copied to other disks, and
	// returns on how many it is then.
	Copy func(ctx context.Context, digest string) int
	Now  func() time.Time
	Log  *slog.Logger
}

// Service publishes and serves template versions. It is safe for concurrent use,
// also beside other replicas.
type Service struct {
	cfg    Config
	memory *store.Memory
}

// New makes a service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, memory: memoryOf(cfg, maxOperations)}
}

// head is the current head; a zero one with revision 0 when there is none.
func (s *Service) head(ctx context.Context, ref fleet.TemplateRef) (fleet.TemplateHead, error) {
	head, err := store.Get(ctx, s.cfg.Store, store.TemplateHeadKey(ref))
	if errs.Is(err, errs.NotFound) {
		return fleet.TemplateHead{}, nil
	}
	return head, err
}

// existing is the current head. NotFound when there is none.
func (s *Service) existing(ctx context.Context, ref fleet.TemplateRef) (fleet.TemplateHead, error) {
	head, err := s.head(ctx, ref)
	if err == nil && head.ModRev == 0 {
		err = errs.New(errs.NotFound, "template %s does not exist: make it first", ref)
	}
	return head, err
}

// Head is a template's head. NotFound when the template does not exist.
func (s *Service) Head(ctx context.Context, ref fleet.TemplateRef) (fleet.TemplateHead, error) {
	head, err := s.existing(ctx, ref)
	return head, errs.Wrap("template.Head", err)
}

// ManifestBody is a manifest as it was published, checked against its digest. NotFound
// when it is not stored here.
func (s *Service) ManifestBody(ctx context.Context, digest string) ([]byte, error) {
	return s.cfg.Vault.ReadAll(ctx, digest)
}

// Manifest reads a version's content. Errors as of ManifestBody and fleet.DecodeManifest.
func (s *Service) Manifest(ctx context.Context, digest string) (fleet.Manifest, error) {
	body, err := s.ManifestBody(ctx, digest)
	if err != nil {
		return fleet.Manifest{}, errs.Wrap("template.Manifest", err)
	}
	return fleet.DecodeManifest(body, digest, fleet.VersionLimits())
}

// Stored reports whether all of a file's content is known to be stored here. Only
// Publish.Keep makes sure that it stays.
func (s *Service) Stored(ctx context.Context, c fleet.Content) (bool, error) {
	for _, b := range c.Blobs() {
		if there, err := s.cfg.Vault.Has(ctx, b.SHA256, b.Size); !there || err != nil {
			return false, errs.Wrap("template.Stored", err)
		}
	}
	return true, nil
}

// Blobs is where contents lie.
func (s *Service) Blobs() *vault.Vault { return s.cfg.Vault }

// Open opens a file's content. NotFound when a part of it is not stored here. The
// caller closes it.
func (s *Service) Open(ctx context.Context, c fleet.Content) (io.ReadCloser, error) {
	return s.cfg.Vault.Join(ctx, c)
}
