// Package peer keeps what one replica stores on others too, where each has a disk of
// its own.
//
//	a version is published ──▶ one other replica is asked to copy it, and waited for a while
//	a version exists ────────▶ every replica copies it, soon after and whenever it looks
//	content is read ─────────▶ it is fetched from another replica if it is not here yet
//
// Replicas that share a directory notice by its id and copy nothing. What is copied is
// verified by its hash. It deletes nothing: that is package collect's.
package peer

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
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/vault"
)

// Config is what a Mirror needs; every field but Copies is required.
type Config struct {
	Store *store.Client
	Vault *vault.Vault
	// Replica is this one's name: the others are its peers.
	Replica string
	// Secret is the cluster secret.
	Secret string
	// Roots are the digests of all manifests that have to be here.
	Roots func(ctx context.Context) ([]string, error)
	// Copies is how many disks a version is to be on before it is published; below 2 no
	// peer is waited for.
	Copies int
	// Shared says that the vault lies where others look too, far away: what was found there
	// whole is not looked at again.
	Shared bool
	Log    *slog.Logger
}

// copyPatience bounds how long a publish waits for one peer's copy. The peer goes on
// by itself once the version exists.
const copyPatience = 10 * time.Second

// Mirror copies from and to peers. It is safe for concurrent use.
type Mirror struct {
	cfg    Config
	http   *http.Client
	client *client.Client // of all others
	others neighbours
	todo   *backlog
	whole  map[string]bool // versions that were found whole; of the goroutine of work
}

// New makes a mirror; Run makes it work.
func New(cfg Config) *Mirror {
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce, DisableCompression: true, ResponseHeaderTimeout: client.DefaultPatience}
	m := &Mirror{cfg: cfg, http: &http.Client{Transport: transport}, todo: newBacklog(), whole: map[string]bool{}}
	m.client = m.ask(m.others.urlsNow)
	return m
}

// ask is a client of some replicas.
func (m *Mirror) ask(urls func() []string) *client.Client {
	return client.New(client.Config{Resolve: urls, Secret: m.cfg.Secret, HTTP: m.http, Log: m.cfg.Log})
}

// atOnce is how many files of a version are copied at the same time.
const atOnce = 8

// Version copies what this replica lacks of a version. NotFound when no peer has it,
// Unavailable when they do not answer. A replica without peers has to have it.
func (m *Mirror) Version(ctx context.Context, digest string) error {
	body, err := m.cfg.Vault.ReadAll(ctx, digest)
	if err != nil {
		return errs.Wrap("peer.Version", err)
	}
	var manifest fleet.Manifest
	if err := json.Unmarshal(body, &manifest); err != nil {
		return errs.As(errs.Internal, "peer.Version", fmt.Errorf("manifest %s: %w", digest, err))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range manifest.Entries {
		if ctx.Err() != nil {
			break
		}
		if e := &manifest.Entries[i]; e.Kind == fleet.FileRegular {
			g.Go(func() error { return m.cfg.Vault.Ensure(ctx, e.Content()) })
		}
	}
	return errs.Wrap("peer.Version", g.Wait())
}

// Serve copies a version for a peer that is about to publish it, and returns the id of
// the directory it is on. Errors as of Version.
func (m *Mirror) Serve(ctx context.Context, digest string) (id string, err error) {
	if err := m.Version(ctx, digest); err != nil {
		return "", err
	}
	if err := m.cfg.Vault.Flush(ctx); err != nil {
		return "", errs.Wrap("peer.Serve", err)
	}
	id, err = m.cfg.Vault.ID(ctx)
	return id, errs.Wrap("peer.Serve", err)
}

// Copy has peers copy a version that is about to be published, until it is on as many
// disks as wanted, and returns on how many it is. Those that cannot, or not in time,
// are told in the log and do not hinder.
func (m *Mirror) Copy(ctx context.Context, digest string) (copies int) {
	copies = 1
	if m.cfg.Copies < 2 {
		return copies
	}
	urls, err := m.peers(ctx)
	if err != nil {
		return copies
	}
	mine, err := m.cfg.Vault.ID(ctx)
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
