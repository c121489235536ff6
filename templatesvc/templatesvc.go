// Package templatesvc is the service that keeps templates: it publishes what is
// dropped into a directory as content-addressed versions and serves manifests and
// files to the agents that build instances from them.
//
// Files lie on its disk, versions and heads in etcd. It decides nothing about
// instances; it moves a head when the directory changes or when somebody rolls back.
package templatesvc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/dropin"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/collect"
	"github.com/orreryhq/orrery/templatesvc/internal/editor"
	"github.com/orreryhq/orrery/templatesvc/internal/endpoint"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
	"github.com/orreryhq/orrery/templatesvc/internal/origin/artifact"
	"github.com/orreryhq/orrery/templatesvc/internal/origin/bucket"
	"github.com/orreryhq/orrery/templatesvc/internal/origin/configurations"
	"github.com/orreryhq/orrery/templatesvc/internal/origin/git"
	"github.com/orreryhq/orrery/templatesvc/internal/origin/program"
	"github.com/orreryhq/orrery/templatesvc/internal/peer"
	"github.com/orreryhq/orrery/templatesvc/internal/scrub"
	"github.com/orreryhq/orrery/templatesvc/internal/source"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
	"github.com/orreryhq/orrery/templatesvc/internal/transport"
)

// Config is what the service needs. Store, BlobDir, ClusterSecret, Replica and Log
// are required.
type Config struct {
	Store *store.Client
	// Dir is the watched directory, <group>/<name>/; none when empty. BlobDir is where
	// file contents are kept.
	Dir, BlobDir string
	// Quiet is how long nothing in a template of Dir may change before it is published,
	// three times as long when something was added; 0 is a second.
	Quiet time.Duration
	// ProgramsDir holds the programs that sources may name, by absolute path; "" has none.
	ProgramsDir string
	// ConfigurationsDir is what sources of configurations read, by absolute path; "" has none.
	ConfigurationsDir string
	// Settling is how long a configuration must have been missing there before it goes; 0 is
	// a minute.
	Settling time.Duration
	// Bucket keeps file contents instead of BlobDir, which then holds what is under way and
	// what was read lately. Nil: BlobDir keeps them.
	Bucket *Bucket
	// Listen is the address of the API. Empty: a free port on loopback.
	Listen string
	// AdvertiseURL is where others reach it. Empty: derived from the listener, see wire.URLOf.
	AdvertiseURL string
	// EgressProxy is the URL of the HTTP proxy for sources and the catalog; "" uses none.
	EgressProxy string
	// ClusterSecret must come with every call.
	ClusterSecret string
	// Replica is this process' name among its kind; Takeover as in store.Replica.
	Replica    string
	Takeover   bool
	SessionTTL time.Duration
	Version    string
	// Copies is on how many disks a version is before it is published, as far as there
	// are other replicas; 0 and 1: its own alone.
	Copies int
	// KeepVersions is how many versions of a template are kept; 0: all. CollectInterval
	// is how often content that nothing refers to is removed; 0: every hour.
	KeepVersions    int
	CollectInterval time.Duration
	// ScrubInterval is how long it takes to read all of BlobDir again; 0: it is not.
	ScrubInterval time.Duration
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Metrics takes the service's metrics. Nil drops them.
	Metrics prometheus.Registerer
}

// Service is a template service. Make it with New.
type Service struct {
	cfg      Config
	listener net.Listener
	server   *http.Server
	source   *source.Directory
	replica  *store.Replica
	runner   *source.Runner
	keeper   *collect.Keeper
	mirror   *peer.Mirror
	scrubber *scrub.Scrubber // nil when nothing is scrubbed
	egress   *allowList
	// templates is the service behind the API.
	templates *template.Service
	done      func() // gives back what New opened
}

const (
	defaultListen = "127.0.0.1:0"
	drainTimeout  = 5 * time.Second

	defaultCollectInterval = time.Hour
	// forgetEvery is the pause between two looks for drafts that nobody touches any more, and
	// directories whose replicas are away.
	forgetEvery = time.Hour
)

// New opens the blob store and the listener, so that URL is known before Run.
// Invalid when a directory or an address cannot be used.
func New(cfg Config) (*Service, error) {
	switch {
	case cfg.Store == nil, cfg.Log == nil, cfg.BlobDir == "":
		return nil, errs.New(errs.Invalid, "templatesvc: Store, Log and BlobDir are required")
	case cfg.ClusterSecret == "":
		return nil, errs.Field("cluster.secret", "is required: it keeps strangers out")
	case cfg.Replica == "":
		return nil, errs.Field("replica", "a name for this replica is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	kept, err := openContent(cfg)
	if err != nil {
		return nil, err
	}
	blobs := kept.blobs
	blobs.TellDamage(func(f blob.File, path string) {
		cfg.Log.Warn("a file of contents is damaged on the disk and was put aside: it is fetched from another replica, and where none has it, publish it again; look at the disk",
			"path", path, "sha256", f.Sum, "form", string(f.Form))
	})
	mirror, service := newContent(cfg, kept)
	proxy, err := proxyURL(cfg.EgressProxy)
	if err != nil {
		return nil, err
	}
	allowed := newAllowList()
	policy := egress.Policy{Allowed: allowed.Allowed, Proxy: proxy}
	artifacts, err := openCatalog(cfg, policy)
	if err != nil {
		return nil, unusable("blobs.dir", cfg.BlobDir, err)
	}
	dir, err := directory(cfg, service)
	if err != nil {
		return nil, err
	}
	if cfg.Listen == "" {
		cfg.Listen = defaultListen
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, unusable("listen", cfg.Listen, err)
	}
	f, err := newFigures(cfg.Metrics)
	if err != nil {
		return nil, errs.Wrap("templatesvc.New", errors.Join(err, listener.Close()))
	}
	s := &Service{cfg: cfg, listener: listener, source: dir, templates: service, done: kept.done, scrubber: newScrubber(cfg, blobs, f), keeper: newKeeper(cfg, blobs, service, f), mirror: mirror, egress: allowed}
	endpoints := endpoint.New(service, s.keeper, mirror)
	endpoints.Artifacts = endpoint.NewArtifacts(artifacts)
	s.server = &http.Server{
		Handler: transport.NewHandler(endpoints, endpoint.NewTrees(editor.NewReader(service)),
			endpoint.NewEdits(editor.NewWriter(service, filepath.Join(cfg.BlobDir, "incoming"))), cfg.ClusterSecret, f.requests),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	s.runner, err = source.NewRunner(source.RunnerConfig{
		Store: cfg.Store, Service: service, Kinds: kinds(cfg), Owned: func() *store.Ownership { return s.replica.Owned() },
		Settling: cfg.Settling, Secret: cfg.ClusterSecret, Dialer: origin.Dialer{Egress: policy}, Spool: blobs.Spool(), Now: cfg.Now, Log: cfg.Log,
	})
	if err != nil {
		return nil, errs.Wrap("templatesvc.New", errors.Join(err, listener.Close()))
	}
	allowed.changed = s.runner.LookAgain
	s.replica = &store.Replica{
		Claim: true, Gained: func(*store.Ownership) { s.runner.Wake() },
		Client: cfg.Store, TTL: cfg.SessionTTL, Takeover: cfg.Takeover, Log: cfg.Log,
		Self: fleet.Session{Service: "templatesvc", Replica: cfg.Replica, URL: s.URL(), Version: cfg.Version, StartedAt: cfg.Now().UTC()},
	}
	return s, nil
}

// kinds are the kinds of recorded sources.
func kinds(cfg Config) map[fleet.SourceKind]source.Fetch {
	return map[fleet.SourceKind]source.Fetch{
		fleet.SourceHTTP: artifact.Fetch, fleet.SourceGit: git.Fetch, fleet.SourceS3: bucket.Fetch,
		fleet.SourceProgram: program.From(dropin.Dir(cfg.ProgramsDir)), fleet.SourceConfigurations: configurations.From(cfg.ConfigurationsDir),
	}
}

// directory is the watched directory, nil when there is none.
func directory(cfg Config, service *template.Service) (*source.Directory, error) {
	if cfg.Dir == "" {
		return nil, nil
	}
	others := func(ctx context.Context) (n int, err error) {
		sessions, _, err := store.List(ctx, cfg.Store, store.Sessions("templatesvc"))
		for _, s := range sessions {
			if s.Replica != cfg.Replica {
				n++
			}
		}
		return n, err
	}
	dir, err := source.New(source.Config{Dir: cfg.Dir, Quiet: cfg.Quiet, Service: service, Store: cfg.Store, Replica: cfg.Replica, Others: others, Remote: cfg.Bucket != nil, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, unusable("templates.dir", cfg.Dir, err)
	}
	return dir, nil
}

func unusable(field, value string, err error) error {
	return &errs.Error{Op: "templatesvc.New", Kind: errs.Invalid, Field: field, Err: err, Message: fmt.Sprintf("%s cannot be used: %v", value, err)}
}

// URL is where the API is reached.
func (s *Service) URL() string {
	if s.cfg.AdvertiseURL != "" {
		return s.cfg.AdvertiseURL
	}
	return wire.URLOf(s.listener.Addr())
}

// Synced is closed when the templates found at the start have been published.
func (s *Service) Synced() <-chan struct{} {
	if s.source == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return s.source.Synced()
}

// Run serves until ctx ends, then lets calls under way finish.
func (s *Service) Run(ctx context.Context) error {
	defer s.done()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return wire.Serve(ctx, s.server, s.listener, drainTimeout) })
	if s.source != nil {
		g.Go(func() error { return s.source.Run(ctx) })
	}
	g.Go(func() error { return s.cfg.Store.Follow(ctx, store.ConfigActiveKey().String(), s.egress) })
	g.Go(func() error { return s.replica.Run(ctx) })
	g.Go(func() error { return s.runner.Run(ctx) })
	g.Go(func() error { return s.mirror.Run(ctx) })
	g.Go(func() error { return s.keeper.Run(ctx, cmp.Or(s.cfg.CollectInterval, defaultCollectInterval)) })
	if s.scrubber != nil {
		g.Go(func() error { return s.scrubber.Run(ctx) })
	}
	g.Go(func() error { s.forget(ctx); return nil })
	return errs.Wrap("templatesvc.Run", g.Wait())
}

// forget removes old drafts, and what is remembered of directories that are no more, now
// and then until ctx ends.
func (s *Service) forget(ctx context.Context) {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := errors.Join(s.templates.ExpireDrafts(ctx), s.templates.ForgetDirectories(ctx))
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("old drafts and directories of templates are not forgotten, trying again later", "error", err)
		}
	}
}
