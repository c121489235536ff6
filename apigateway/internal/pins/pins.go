// Package pins completes versions of the catalog that have no hash: it downloads their URL and
// writes the hash of that first download.
//
// Every gateway does this. The first to finish writes the hash, and the others keep it. A failed
// download is retried with back-off.
package pins

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// headStart is the time that other gateways leave to the one that stored the version.
	headStart = 15 * time.Second
	// workers is the number of concurrent downloads.
	workers = 2
	// resync is the period of the safety net.
	resync = time.Hour
)

// Version names a version of a platform.
type Version struct{ Platform, Version string }

// Config is what a Pinner needs; all of it is required.
type Config struct {
	View *view.View
	// Download has templatesvc store the content of a URL.
	Download func(ctx context.Context, url string) (fleet.Content, error)
	// Keep writes the hash of a version, unless the version has a hash or another URL by then.
	Keep func(ctx context.Context, v Version, url, sha256 string) error
	Log  *slog.Logger
}

// Pinner downloads versions without a hash. Make it with New.
type Pinner struct {
	cfg   Config
	queue *reconcile.Queue[Version]

	mu      sync.Mutex
	waiting map[Version][]chan error
}

// New makes a Pinner. Subscribe its Hear to the view.
func New(cfg Config) *Pinner {
	p := &Pinner{cfg: cfg, waiting: map[Version][]chan error{}}
	p.queue = reconcile.New(reconcile.Options[Version]{
		Name: "pins", Reconcile: p.pin, Workers: workers, Backoff: reconcile.Backoff{Base: time.Second, Max: time.Minute},
		Resync: resync, Keys: func() iter.Seq[Version] { return unpinned(cfg.View.Snapshot()) },
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Log: cfg.Log,
	})
	return p
}

// Run works until ctx ends.
func (p *Pinner) Run(ctx context.Context) {
	p.look(p.cfg.View.Snapshot())
	_ = p.queue.Run(ctx) // ends with ctx
}

// Hear schedules downloads after a change of the catalog.
func (p *Pinner) Hear(b view.Batch) {
	for _, c := range b.Changes {
		if c.Kind == view.KindCatalog {
			p.look(b.After)
			return
		}
	}
}

func (p *Pinner) look(s *view.Snapshot) {
	for v := range unpinned(s) {
		p.queue.AddAfter(v, headStart)
	}
}

// unpinned are the versions without a hash.
func unpinned(s *view.Snapshot) iter.Seq[Version] {
	return func(yield func(Version) bool) {
		for _, p := range s.Catalog.All() {
			for _, v := range p.Versions {
				if v.SHA256 == "" && !yield(Version{p.Platform, v.Version}) {
					return
				}
			}
		}
	}
}

// Now downloads a version at once and waits until its hash is written. When ctx ends first, Now
// returns its error and the download continues.
func (p *Pinner) Now(ctx context.Context, v Version) error {
	done := make(chan error, 1)
	p.mu.Lock()
	p.waiting[v] = append(p.waiting[v], done)
	p.mu.Unlock()
	p.queue.Add(v)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errs.Wrap("pins.Now", ctx.Err())
	}
}

// pin is a reconcile.Reconciler.
func (p *Pinner) pin(ctx context.Context, v Version) (reconcile.Result, error) {
	p.mu.Lock()
	waiting := p.waiting[v]
	delete(p.waiting, v)
	p.mu.Unlock()
	err := p.download(ctx, v)
	for _, w := range waiting {
		w <- err
	}
	return reconcile.Result{}, err
}

func (p *Pinner) download(ctx context.Context, v Version) error {
	platform, ok := p.cfg.View.Snapshot().Catalog.Get(v.Platform)
	if !ok {
		return nil
	}
	entry, ok := platform.Find(v.Version)
	if !ok || entry.SHA256 != "" {
		return nil
	}
	content, err := p.cfg.Download(ctx, entry.URL)
	if err != nil {
		return err
	}
	return p.cfg.Keep(ctx, v, entry.URL, content.SHA256)
}
