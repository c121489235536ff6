package replication

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	repairEvery = time.Hour   // interval of the checks of all content
	firstRetry  = time.Second // first pause after a failed copy; doubles up to lastRetry
	lastRetry   = time.Minute
	maxWhole    = 100_000 // maximum number of entries in Mirror.whole
)

// Run copies versions from other replicas until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.cfg.Store.Follow(ctx, keys.AllTemplateVersions().String(), m.todo) })
	g.Go(func() error { return m.work(ctx) })
	return errs.Wrap("peer.Run", g.Wait())
}

// work copies new versions when they appear, checks all content every repairEvery, and
// retries failed copies.
func (m *Mirror) work(ctx context.Context) error {
	defer m.http.CloseIdleConnections()
	all := time.NewTicker(repairEvery)
	defer all.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	known := false // whether rootsToo has succeeded since the last tick
	wait := firstRetry
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.todo.wake:
			wait = firstRetry
		case <-all.C:
			known = false
		case <-retry.C:
		}
		if !known {
			known = m.rootsToo(ctx)
		} else if wait == lastRetry {
			m.forgetGone(ctx)
		}
		missing := m.catchUp(ctx)
		if missing == 0 && known {
			continue
		}
		if wait > firstRetry && missing > 0 {
			m.cfg.Log.Warn("the content of versions is missing here, and no other replica has it", "versions", missing)
		}
		retry.Reset(wait)
		wait = min(2*wait, lastRetry)
	}
}

// rootsToo queues everything that refers to content: versions, plans, drafts and sources.
// It returns false if the list cannot be read now.
func (m *Mirror) rootsToo(ctx context.Context) bool {
	roots, err := m.cfg.Roots(ctx)
	m.todo.put(roots...)
	return err == nil
}

// forgetGone drops versions that nothing refers to any more.
func (m *Mirror) forgetGone(ctx context.Context) {
	pending := m.todo.take()
	roots, err := m.cfg.Roots(ctx)
	if err == nil {
		slices.Sort(roots)
		pending = slices.DeleteFunc(pending, func(digest string) bool {
			_, wanted := slices.BinarySearch(roots, digest)
			return !wanted
		})
	}
	m.todo.put(pending...)
}

// catchUp copies all queued versions. Those that fail stay queued; it returns their number.
func (m *Mirror) catchUp(ctx context.Context) (missing int) {
	for _, digest := range m.todo.take() {
		if m.cfg.Shared && m.whole[digest] {
			continue
		}
		err := m.Version(ctx, digest)
		if ctx.Err() != nil {
			return missing
		}
		if err != nil {
			missing++
			m.todo.put(digest)
			m.cfg.Log.Debug("the content of a version is not complete yet", "digest", digest, "error", err)
			continue
		}
		if len(m.whole) >= maxWhole {
			clear(m.whole)
		}
		m.whole[digest] = true
	}
	return missing
}

// backlog is the queue of versions to copy. It implements store.Handler for version
// records.
type backlog struct {
	wake chan struct{}

	mu      sync.Mutex
	digests map[string]bool
}

func newBacklog() *backlog {
	return &backlog{wake: make(chan struct{}, 1), digests: map[string]bool{}}
}

// put adds versions to the queue.
func (b *backlog) put(digests ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range digests {
		b.digests[d] = true
	}
}

// add adds a version to the queue and wakes work.
func (b *backlog) add(digest string) {
	b.put(digest)
	select {
	case b.wake <- struct{}{}:
	default:
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

// Reset implements store.Handler.
func (b *backlog) Reset(kvs []store.KeyValue, _ int64) {
	for _, kv := range kvs {
		b.add(digestOf(kv.Key))
	}
}

// Apply implements store.Handler.
func (b *backlog) Apply(changes []store.Change, _ int64) {
	for _, c := range changes {
		if !c.Removed {
			b.add(digestOf(c.Key))
		}
	}
}

// digestOf returns the last part of a version's key.
func digestOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
