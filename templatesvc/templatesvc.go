// Package templatesvc is the template service. It publishes the templates of a directory
// and of other sources as content-addressed versions, and serves manifests and files to the
// agents that build instances from them.
//
// File contents are on its disk or in a bucket; versions and heads are in etcd. The service
// makes no decisions about instances. It moves a head when a source changes, or when a user
// edits a template or rolls it back.
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
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/revocation"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/internal/api"
	"github.com/orreryhq/orrery/templatesvc/internal/artifacts"
	"github.com/orreryhq/orrery/templatesvc/internal/edit/editor"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/artifact"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/bucket"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/configurations"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/directory"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/git"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/program"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/store/gc"
	"github.com/orreryhq/orrery/templatesvc/internal/store/integrity"
	"github.com/orreryhq/orrery/templatesvc/internal/store/replication"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// Config is what the service needs. Store, BlobDir, ClusterSecret, Replica and Log are
// required.
type Config struct {
	Store *store.Client
	// Dir is the watched directory, <group>/<name>/; "" means none. BlobDir is the
	// directory for file contents.
	Dir, BlobDir string
	// Quiet is how long a template in Dir must be unchanged before it is published; three
	// times as long if something was added to it. 0 means a second.
	Quiet time.Duration
	// ProgramsDir is the absolute path of the programs that sources may use; "" means none.
	ProgramsDir string
	// ConfigurationsDir is the absolute path that sources of configurations read; "" means
	// none.
	ConfigurationsDir string
	// Settling is how long a configuration must be missing before it is removed. 0 means a
	// minute.
	Settling time.Duration
	// Bucket stores the file contents instead of BlobDir, which then holds temporary files
	// and a cache. Nil means that BlobDir stores them.
	Bucket *Bucket
	// Listen is the address of the API; "" means a free port on the loopback interface.
	Listen string
	// AdvertiseURL is the URL of the API for other processes; "" derives it from the
	// listener, see trust.Peers.URLOf.
	AdvertiseURL string
	// EgressProxy is the URL of the HTTP proxy for sources and the catalog; "" means none.
	EgressProxy string
	// ClusterSecret opens the credentials of sources in a cluster without a keyring.
	ClusterSecret string
	// SealKey has the key-encryption keys of a cluster with a keyring; see seal.CheckKeys.
	SealKey string
	// Peers authenticates the calls between services. Nil means by the cluster secret.
	Peers *trust.Peers
	// Replica is the name of this process among the replicas. For Takeover, see
	// store.Replica.
	Replica    string
	Takeover   bool
	SessionTTL time.Duration
	Version    string
	// Copies is the number of disks that should have a version before it is published, if
	// there are enough replicas. 0 and 1 mean only the replica's own disk.
	Copies int
	// KeepVersions is the number of versions kept per template; 0 means all.
	// CollectInterval is the interval of garbage collections; 0 means an hour.
	KeepVersions    int
	CollectInterval time.Duration
	// ScrubInterval is the duration of reading all of BlobDir again; 0 means never.
	ScrubInterval time.Duration
	// Now returns the time, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Metrics receives the service's metrics. Nil drops them.
	Metrics prometheus.Registerer
}

// Service is a template service. Create it with New.
type Service struct {
	// revoked are the nodes whose agents are refused.
	revoked  *revocation.List
	cfg      Config
	listener net.Listener
	server   *http.Server
	source   *directory.Directory
	replica  *store.Replica
	runner   *directory.Runner
	ring     *seal.Ring
	keeper   *gc.Keeper
	mirror   *replication.Mirror
	scrubber *integrity.Scrubber // nil when scrubbing is off
	egress   *allowList
	// templates manages the versions.
	templates *versions.Service
	done      func() // closes what New opened
}

const (
	defaultListen = "127.0.0.1:0"
	drainTimeout  = 5 * time.Second

	defaultCollectInterval = time.Hour
	// forgetEvery is the interval of removing abandoned drafts and the memory of
	// directories whose replicas are away.
	forgetEvery = time.Hour
)

// New opens the blob store and the listener, so that URL is known before Run. It returns
// Invalid when a directory or an address cannot be used.
func New(cfg Config) (*Service, error) {
	switch {
	case cfg.Store == nil, cfg.Log == nil, cfg.BlobDir == "":
		return nil, errs.New(errs.Invalid, "templatesvc: Store, Log and BlobDir are required")
	case cfg.ClusterSecret == "":
		return nil, errs.Field("cluster.secret", "is required: it seals the credentials of sources")
	case cfg.Replica == "":
		return nil, errs.Field("replica", "a name for this replica is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Peers == nil {
		cfg.Peers = trust.BySecret(cfg.ClusterSecret)
	}
	if err := cfg.Peers.CheckOwn(pki.Identity{Service: pki.Templates}); err != nil {
		return nil, err
	}
	if err := cfg.Peers.CheckURL("advertise-url", cfg.AdvertiseURL); err != nil {
		return nil, err
	}
	ring, err := seal.NewRing(cfg.ClusterSecret, cfg.SealKey, func(ctx context.Context) (account.Keyring, error) {
		return store.Get(ctx, cfg.Store, keys.Keyring())
	})
	if err != nil {
		return nil, err
	}
	kept, err := openContent(cfg)
	if err != nil {
		return nil, err
	}
	blobs := kept.blobs
	blobs.TellDamage(func(f blob.File, path string) {
		cfg.Log.Warn("a file of the content store is damaged and was set aside: templatesvc fetches it from another replica; if no replica has it, publish it again; check the disk",
			"path", path, "sha256", f.Sum, "form", string(f.Form))
	})
	mirror, service := newContent(cfg, kept)
	proxy, err := proxyURL(cfg.EgressProxy)
	if err != nil {
		return nil, err
	}
	allowed := newAllowList()
	policy := egress.Policy{Allowed: allowed.Allowed, Proxy: proxy}
	catalog, err := artifacts.Open(artifacts.Config{
		Dir: filepath.Join(cfg.BlobDir, "artifacts"), Egress: policy, Now: time.Now, Log: cfg.Log,
		Catalog: func(ctx context.Context) ([]content.CatalogPlatform, error) {
			all, _, err := store.List(ctx, cfg.Store, keys.Catalog())
			return all, err
		},
	})
	if err != nil {
		return nil, unusable("blobs.dir", cfg.BlobDir, err)
	}
	dir, err := watchedDirectory(cfg, service)
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
	s := &Service{cfg: cfg, listener: listener, revoked: revocation.New(cfg.Log), source: dir, templates: service, done: kept.done, scrubber: newScrubber(cfg, blobs, f), keeper: newKeeper(cfg, blobs, service, f), mirror: mirror, egress: allowed}
	cfg.Peers.RefuseIf(s.revoked.CheckCaller)
	calls := &api.Server{
		Versions: service, Keeper: s.keeper, Mirror: mirror, Artifacts: catalog, Reader: editor.NewReader(service),
		Writer: editor.NewWriter(service, blobs.Spool()), Peers: cfg.Peers, Requests: f.requests,
	}
	s.server = &http.Server{
		Handler:           calls.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	s.ring = ring
	s.runner = directory.NewRunner(directory.RunnerConfig{
		Store: cfg.Store, Service: service, Kinds: kinds(cfg), Owned: func() *store.Ownership { return s.replica.Owned() },
		Settling: cfg.Settling, Ring: ring, Dialer: sources.Dialer{Egress: policy}, Spool: blobs.Spool(), Now: cfg.Now, Log: cfg.Log,
	})
	allowed.changed = s.runner.LookAgain
	s.replica = &store.Replica{
		Claim: true, Gained: func(*store.Ownership) { s.runner.Wake() },
		Client: cfg.Store, TTL: cfg.SessionTTL, Takeover: cfg.Takeover, Log: cfg.Log,
		Self: cluster.Session{Service: "templatesvc", Replica: cfg.Replica, URL: s.URL(), SealKeys: ring.KeyIDs(), Version: cfg.Version, StartedAt: cfg.Now().UTC()},
	}
	return s, nil
}

// kinds returns the supported kinds of recorded sources.
func kinds(cfg Config) map[content.SourceKind]directory.Fetch {
	return map[content.SourceKind]directory.Fetch{
		content.SourceHTTP: artifact.Fetch, content.SourceGit: git.Fetch, content.SourceS3: bucket.Fetch,
		content.SourceProgram: program.From(dropin.Dir(cfg.ProgramsDir)), content.SourceConfigurations: configurations.From(cfg.ConfigurationsDir),
	}
}

// watchedDirectory returns the watched directory, or nil when there is none.
func watchedDirectory(cfg Config, service *versions.Service) (*directory.Directory, error) {
	if cfg.Dir == "" {
		return nil, nil
	}
	others := func(ctx context.Context) (n int, err error) {
		sessions, _, err := store.List(ctx, cfg.Store, keys.Sessions("templatesvc"))
		for _, s := range sessions {
			if s.Replica != cfg.Replica {
				n++
			}
		}
		return n, err
	}
	dir, err := directory.New(directory.Config{Dir: cfg.Dir, Quiet: cfg.Quiet, Service: service, Store: cfg.Store, Replica: cfg.Replica, Others: others, Remote: cfg.Bucket != nil, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, unusable("templates.dir", cfg.Dir, err)
	}
	return dir, nil
}

func unusable(field, value string, err error) error {
	return &errs.Error{Op: "templatesvc.New", Kind: errs.Invalid, Field: field, Err: err, Message: fmt.Sprintf("%s cannot be used: %v", value, err)}
}

// URL returns the URL of the API.
func (s *Service) URL() string {
	if s.cfg.AdvertiseURL != "" {
		return s.cfg.AdvertiseURL
	}
	return s.cfg.Peers.URLOf(s.listener.Addr())
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

// Run serves until ctx ends, and then waits for running calls.
func (s *Service) Run(ctx context.Context) error {
	defer s.done()
	if _, err := s.ring.Load(ctx); errs.Is(err, errs.Invalid) { // while etcd is away, the credentials of a source need it
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return wire.Serve(ctx, s.server, s.cfg.Peers.Listener(s.listener), drainTimeout) })
	g.Go(func() error { return s.revoked.Run(ctx, s.cfg.Store) })
	if s.source != nil {
		g.Go(func() error { return s.source.Run(ctx) })
	}
	g.Go(func() error { return s.cfg.Store.Follow(ctx, keys.ConfigActive().String(), s.egress) })
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

// forget removes abandoned drafts and the memory of dead replicas' directories every
// forgetEvery, until ctx ends.
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
