package peer

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	repairEvery = time.Hour       // everything is looked at anew
	firstRetry  = 5 * time.Second // after something could not be copied; it doubles up to repairEvery
)

// Run copies what is published elsewhere, until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.cfg.Store.Follow(ctx, store.AllTemplateVersions().String(), m.todo) })
	g.Go(func() error { return m.work(ctx) })
	return errs.Wrap("peer.Run", g.Wait())
}

func (m *Mirror) work(ctx context.Context) error {
	defer m.http.CloseIdleConnections()
	look := time.NewTimer(0)
	defer look.Stop()
	pause := firstRetry
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.todo.wake:
			pause = firstRetry
		case <-look.C:
			m.rootsToo(ctx)
		}
		missing := m.catchUp(ctx)
		if missing == 0 {
			look.Reset(repairEvery)
			continue
		}
		if pause > firstRetry {
			m.cfg.Log.Warn("the content of versions is missing here, and no other replica gives it", "versions", missing)
		}
		look.Reset(pause)
		pause = min(2*pause, repairEvery)
	}
}

// rootsToo adds what is no version: what plans, drafts and sources refer to.
func (m *Mirror) rootsToo(ctx context.Context) {
	if roots, err := m.cfg.Roots(ctx); err == nil {
		m.todo.add(roots...)
	}
}

// catchUp copies all that is to do and returns how much of it could not be copied.
func (m *Mirror) catchUp(ctx context.Context) (missing int) {
	for _, digest := range m.todo.take() {
		err := m.Version(ctx, digest)
		if ctx.Err() != nil {
			return missing
		}
		if err != nil {
			missing++
			m.cfg.Log.Debug("a version's content is not all here yet", "digest", digest, "error", err)
		}
	}
	return missing
}

// backlog is what is to be copied: a handler of versions that appear.
type backlog struct {
	wake chan struct{}

	mu      sync.Mutex
	digests map[string]bool
}

func newBacklog() *backlog {
	return &backlog{wake: make(chan struct{}, 1), digests: map[string]bool{}}
}

func (b *backlog) add(digests ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range digests {
		b.digests[d] = true
	}
	if len(b.digests) > 0 {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

func (b *backlog) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	digests := make([]string, 0, len(b.digests))
	for d := range b.digests {
		digests = append(digests, d)
	}
	clear(b.digests)
	slices.Sort(digests)
	return digests
}

// Reset adds every version there is.
func (b *backlog) Reset(kvs []store.KeyValue, _ int64) {
	for _, kv := range kvs {
		b.add(digestOf(kv.Key))
	}
}

// Apply adds the versions that appeared.
func (b *backlog) Apply(changes []store.Change, _ int64) {
	for _, c := range changes {
		if !c.Removed {
			b.add(digestOf(c.Key))
		}
	}
}

// digestOf is the last part of a version's key.
func digestOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
