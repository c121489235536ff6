// Package peer keeps what one replica stores on others too, where each has a disk of
// its own.
//
//	a version is published ──▶ one other replica is asked to copy it, and waited for a while
//	a version exists ────────▶ every replica copies it, soon after and whenever it looks
//	a blob was damaged ──────▶ it is copied anew
//
// Replicas that share a directory notice by its id and copy nothing. What is copied is
// verified by its hash. It deletes nothing: that is package collect's.
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
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
	Log    *slog.Logger
}

// copyPatience bounds how long a publish waits for one peer's copy. The peer goes on
// by itself once the version exists.
const copyPatience = 10 * time.Second

// Mirror copies from and to peers. It is safe for concurrent use.
type Mirror struct {
	cfg  Config
	http *http.Client
	todo *backlog
}

// New makes a mirror; Run makes it work.
func New(cfg Config) *Mirror {
	transport := &http.Transport{MaxIdleConnsPerHost: 4, DisableCompression: true, ResponseHeaderTimeout: client.DefaultPatience}
	return &Mirror{cfg: cfg, http: &http.Client{Transport: transport}, todo: newBacklog()}
}

// peers are the URLs of the other replicas that live.
func (m *Mirror) peers(ctx context.Context) (urls []string, err error) {
	sessions, _, err := store.List(ctx, m.cfg.Store, store.Sessions("templatesvc"))
	for _, s := range sessions {
		if s.Replica != m.cfg.Replica && s.URL != "" {
			urls = append(urls, s.URL)
		}
	}
	return urls, errs.Wrap("peer.peers", err)
}

// ask is a client of some replicas.
func (m *Mirror) ask(urls ...string) *client.Client {
	return client.New(client.Config{Resolve: func() []string { return urls }, Secret: m.cfg.Secret, HTTP: m.http, Log: m.cfg.Log})
}

// Version copies what this replica lacks of a version. NotFound when no peer has it,
// Unavailable when they do not answer. A replica without peers has to have it.
func (m *Mirror) Version(ctx context.Context, digest string) error {
	c := &copying{mirror: m}
	body, err := c.manifest(ctx, digest)
	if err != nil {
		return errs.Wrap("peer.Version", err)
	}
	var manifest fleet.Manifest
	if err := json.Unmarshal(body, &manifest); err != nil {
		return errs.As(errs.Internal, "peer.Version", fmt.Errorf("manifest %s: %w", digest, err))
	}
	for i := range manifest.Entries {
		if e := &manifest.Entries[i]; e.Kind == fleet.FileRegular {
			if err := c.content(ctx, e.Content()); err != nil {
				return errs.Wrap("peer.Version", err)
			}
		}
	}
	return nil
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

// Heal copies a blob that was damaged here. Errors as of Version.
func (m *Mirror) Heal(ctx context.Context, sum string) error {
	c := &copying{mirror: m}
	return errs.Wrap("peer.Heal", c.blob(ctx, sum, blob.MaxBytes))
}

// copying is one run of copying; the peers are looked up when something is missing.
type copying struct {
	mirror *Mirror
	from   *client.Client
}

func (c *copying) peers(ctx context.Context) (*client.Client, error) {
	if c.from == nil {
		urls, err := c.mirror.peers(ctx)
		if err != nil {
			return nil, err
		}
		if len(urls) == 0 {
			return nil, errs.New(errs.NotFound, "it is not stored here, and there is no other replica")
		}
		c.from = c.mirror.ask(urls...)
	}
	return c.from, nil
}

func (c *copying) manifest(ctx context.Context, digest string) ([]byte, error) {
	body, err := c.mirror.cfg.Vault.ReadAll(ctx, digest)
	if !errs.Is(err, errs.NotFound) {
		return body, err
	}
	if err := c.blob(ctx, digest, fleet.MaxManifestBytes); err != nil {
		return nil, err
	}
	return c.mirror.cfg.Vault.ReadAll(ctx, digest)
}

// content copies what is missing of a file.
func (c *copying) content(ctx context.Context, content fleet.Content) error {
	v := c.mirror.cfg.Vault
	for _, b := range content.Blobs() {
		there, err := v.Has(ctx, b.SHA256, b.Size)
		if err == nil && !there {
			err = c.blob(ctx, b.SHA256, b.Size)
		}
		if err != nil {
			return err
		}
	}
	if content.Chunks == nil {
		return nil
	}
	return v.PutRecipe(ctx, content)
}

// blob copies one blob of at most size bytes.
func (c *copying) blob(ctx context.Context, sum string, size int64) error {
	from, err := c.peers(ctx)
	if err != nil {
		return err
	}
	body, err := from.Blob(ctx, sum)
	if err != nil {
		return err
	}
	err = c.mirror.cfg.Vault.Import(ctx, sum, size, body)
	return errors.Join(err, body.Close())
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
		id, err := m.ask(urls[n]).Replicate(ctx, digest)
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
