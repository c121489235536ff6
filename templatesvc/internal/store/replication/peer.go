// Package replication copies content between replicas that each have their own disk.
//
//	a version is published ──▶ ask another replica to copy it, and wait a limited time
//	a version exists ────────▶ every replica copies it, soon after and in hourly checks
//	content is read ─────────▶ fetch it from another replica if it is missing here
//
// Replicas that share a directory recognize it by its ID and copy nothing. Copies are
// verified by their hash. The package deletes nothing; see package gc.
package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// Config is what a Mirror needs. Copies is optional.
type Config struct {
	Store *store.Client
	Blobs *blob.Store
	// Replica is the name of this replica.
	Replica string
	// Peers authenticates this replica and the others.
	Peers *trust.Peers
	// Roots returns the digests of all manifests that must be stored here.
	Roots func(ctx context.Context) ([]string, error)
	// Copies is the number of disks that should have a version before it is published.
	// Below 2, a publish waits for no other replica.
	Copies int
	// Shared is true if the replicas share remote storage. Versions that were once found
	// complete are then not checked again.
	Shared bool
	Log    *slog.Logger
}

// copyPatience is how long a publish waits for each replica's copy. The replica copies the
// version later in any case.
const copyPatience = 10 * time.Second

// Mirror copies content from and to other replicas. It is safe for concurrent use.
type Mirror struct {
	cfg    Config
	http   *http.Client
	client *client.Client // asks all other replicas
	others neighbours
	todo   *backlog
	whole  map[string]bool // versions that were found complete; owned by work
}

// New returns a Mirror. Run starts its work.
func New(cfg Config) *Mirror {
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce, DisableCompression: true, ResponseHeaderTimeout: client.DefaultPatience}
	m := &Mirror{cfg: cfg, http: &http.Client{Transport: cfg.Peers.Transport(transport, pki.Identity{Service: pki.Templates})}, todo: newBacklog(), whole: map[string]bool{}}
	m.client = m.ask(m.others.urlsNow)
	return m
}

// ask returns a client of some replicas.
func (m *Mirror) ask(urls func() []string) *client.Client {
	return client.New(client.Config{Resolve: urls, Secret: m.cfg.Peers.Token(), HTTP: m.http, Log: m.cfg.Log})
}

// atOnce is how many files of a version are copied concurrently.
const atOnce = 8

// Version copies the missing content of a version. It returns NotFound when no replica has
// it, and Unavailable when replicas do not answer.
func (m *Mirror) Version(ctx context.Context, digest string) error {
	body, err := m.cfg.Blobs.ReadAll(ctx, digest)
	if err != nil {
		return errs.Wrap("peer.Version", err)
	}
	var manifest content.Manifest
	if err := json.Unmarshal(body, &manifest); err != nil {
		return errs.WrapAs(errs.Internal, "peer.Version", fmt.Errorf("manifest %s: %w", digest, err))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range manifest.Entries {
		if ctx.Err() != nil {
			break
		}
		if e := &manifest.Entries[i]; e.Kind == content.FileRegular {
			g.Go(func() error { return m.cfg.Blobs.Ensure(ctx, e.Content()) })
		}
	}
	return errs.Wrap("peer.Version", g.Wait())
}

// Serve copies a version that another replica is about to publish, and returns the ID of
// this replica's store. It returns the errors of Version.
func (m *Mirror) Serve(ctx context.Context, digest string) (id string, err error) {
	if err := m.Version(ctx, digest); err != nil {
		return "", err
	}
	if err := m.cfg.Blobs.Flush(ctx); err != nil {
		return "", errs.Wrap("peer.Serve", err)
	}
	id, err = m.cfg.Blobs.ID(ctx)
	return id, errs.Wrap("peer.Serve", err)
}

// Copy asks other replicas to copy a version that is about to be published, until it is on
// Config.Copies disks. It returns the number of disks that have it. Replicas that fail or
// are too slow are logged and skipped.
func (m *Mirror) Copy(ctx context.Context, digest string) (copies int) {
	copies = 1
	if m.cfg.Copies < 2 {
		return copies
	}
	urls, err := m.peers(ctx)
	if err != nil {
		return copies
	}
	mine, err := m.cfg.Blobs.ID(ctx)
	if err != nil {
		return copies
	}
	seen := map[string]bool{mine: true}
	for _, n := range rand.Perm(len(urls)) {
		if copies >= m.cfg.Copies {
			break
		}
		ctx, cancel := context.WithTimeout(ctx, copyPatience)
		id, err := m.ask(func() []string { return urls[n : n+1] }).Replicate(ctx, digest)
		cancel()
		switch {
		case err != nil:
			m.cfg.Log.Warn("a version is published without its copy on another replica, which follows", "digest", digest, "replica", urls[n], "error", err)
		case !seen[id]:
			seen[id] = true
			copies++
		}
	}
	return copies
}
