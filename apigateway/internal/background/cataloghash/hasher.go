// Package cataloghash completes catalog versions without a hash: it downloads their URL and
// stores the hash of that first download.
//
// Every gateway does this. The first to finish stores the hash, and the others keep it. A failed
// download is retried with back-off.
package cataloghash

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// headStart is how long other gateways wait for the one that created the version.
	headStart = 15 * time.Second
	// workers is the number of concurrent downloads.
	workers = 2
	// resync is how often all versions are checked again, in case a change was missed.
	resync = time.Hour
)

// Version names a version of a platform.
type Version struct{ Platform, Version string }

// Config has what a Hasher needs. All fields are required.
type Config struct {
	View *view.View
	// Download makes templatesvc store the content of a URL.
	Download func(ctx context.Context, url string) (content.Content, error)
	// SetHash stores the hash of a version unless it has a hash or another URL by now.
	SetHash func(ctx context.Context, v Version, url, sha256 string) error
	Log     *slog.Logger
}

// Hasher downloads versions without a hash. Create it with New.
type Hasher struct {
	cfg   Config
	queue *reconcile.Queue[Version]

	mu      sync.Mutex
	waiting map[Version][]chan error
}

// New returns a Hasher. Subscribe its OnBatch to the view.
func New(cfg Config) *Hasher {
	h := &Hasher{cfg: cfg, waiting: map[Version][]chan error{}}
	h.queue = reconcile.New(reconcile.Options[Version]{
		Name: "pins", Reconcile: h.reconcile, Workers: workers, Backoff: reconcile.Backoff{Base: time.Second, Max: time.Minute},
		Resync: resync, Keys: func() iter.Seq[Version] { return unhashed(cfg.View.Snapshot()) },
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Log: cfg.Log,
	})
	return h
}

// Run works until ctx ends.
func (h *Hasher) Run(ctx context.Context) {
	h.enqueue(h.cfg.View.Snapshot())
	_ = h.queue.Run(ctx) // ends with ctx
}

// OnBatch schedules downloads after a catalog change.
func (h *Hasher) OnBatch(b view.Batch) {
	for _, c := range b.Changes {
		if c.Kind == view.KindCatalog {
			h.enqueue(b.After)
			return
		}
	}
}

func (h *Hasher) enqueue(s *view.Snapshot) {
	for v := range unhashed(s) {
		h.queue.AddAfter(v, headStart)
	}
}

// unhashed returns the versions without a hash.
func unhashed(s *view.Snapshot) iter.Seq[Version] {
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

// HashNow downloads a version at once and waits until its hash is stored. If ctx ends first,
// HashNow returns its error and the download continues.
func (h *Hasher) HashNow(ctx context.Context, v Version) error {
	done := make(chan error, 1)
	h.mu.Lock()
	h.waiting[v] = append(h.waiting[v], done)
	h.mu.Unlock()
	h.queue.Add(v)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errs.Wrap("cataloghash.HashNow", ctx.Err())
	}
}

// reconcile is a reconcile.Reconciler.
func (h *Hasher) reconcile(ctx context.Context, v Version) (reconcile.Result, error) {
	h.mu.Lock()
	waiting := h.waiting[v]
	delete(h.waiting, v)
	h.mu.Unlock()
	err := h.download(ctx, v)
	for _, w := range waiting {
		w <- err
	}
	return reconcile.Result{}, err
}

func (h *Hasher) download(ctx context.Context, v Version) error {
	platform, ok := h.cfg.View.Snapshot().Catalog.Get(v.Platform)
	if !ok {
		return nil
	}
	entry, ok := platform.Find(v.Version)
	if !ok || entry.SHA256 != "" {
		return nil
	}
	content, err := h.cfg.Download(ctx, entry.URL)
	if err != nil {
		return err
	}
	return h.cfg.SetHash(ctx, v, entry.URL, content.SHA256)
}
