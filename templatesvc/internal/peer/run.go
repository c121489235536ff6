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
	repairEvery = time.Hour   // everything is looked at anew
	firstRetry  = time.Second // after something could not be copied; it doubles up to lastRetry
	lastRetry   = time.Minute
	maxWhole    = 100_000 // versions remembered as whole
)

// Run copies what is published elsewhere, until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.cfg.Store.Follow(ctx, store.AllTemplateVersions().String(), m.todo) })
	g.Go(func() error { return m.work(ctx) })
	return errs.Wrap("peer.Run", g.Wait())
}

// work copies what appears as it does, all there is now and then, and what could not be
// copied again soon.
func (m *Mirror) work(ctx context.Context) error {
	defer m.http.CloseIdleConnections()
	all := time.NewTicker(repairEvery)
	defer all.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	known := false // whether all there is was looked up since it was last to be
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
			m.cfg.Log.Warn("the content of versions is missing here, and no other replica gives it", "versions", missing)
		}
		retry.Reset(wait)
		wait = min(2*wait, lastRetry)
	}
}

// rootsToo has all looked at that refers to content: versions, and what plans, drafts and
// sources refer to. False when that cannot be told now.
func (m *Mirror) rootsToo(ctx context.Context) bool {
	roots, err := m.cfg.Roots(ctx)
	m.todo.put(roots...)
	return err == nil
}

// forgetGone drops what nothing refers to any more: it is not missing.
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

// catchUp copies all that is to do and returns how much of it could not be copied, which
// stays to do.
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
			m.cfg.Log.Debug("a version's content is not all here yet", "digest", digest, "error", err)
			continue
		}
		if len(m.whole) >= maxWhole {
			clear(m.whole)
		}
		m.whole[digest] = true
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

// put remembers what is to be copied.
func (b *backlog) put(digests ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range digests {
		b.digests[d] = true
	}
}

// add remembers it and wakes whoever copies.
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
