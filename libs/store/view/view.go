package view

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
)

// View follows the store. Make it with New, subscribe, then Run it.
type View struct {
	client *store.Client
	log    *slog.Logger

	current atomic.Pointer[Snapshot]
	// heard is the revision up to which every listener has been called. It follows
	// current, and is raised under mu.
	heard atomic.Int64
	// asks has a value when somebody waits for a revision and none came for a while.
	asks chan struct{}

	// mu guards what follows.
	mu      sync.Mutex
	waiters map[*waiter]struct{}
	subs    []func(Batch)
	running bool
}

// waiter is somebody in WaitRev. err is set before done is closed when the revision
// will never come.
type waiter struct {
	rev  int64
	done chan struct{}
	err  error
}

const (
	// askFirst is how long a waiter waits before etcd is asked how far the watch has
	// come: a revision of a key outside the view comes with no event. It doubles up to askLast.
	askFirst = 50 * time.Millisecond
	askLast  = time.Second
)

var errRewound = errs.New(errs.Unavailable, "etcd went back in time: the revision waited for is of a lost past; retry")

// New makes a view that has seen nothing yet.
func New(c *store.Client, log *slog.Logger) *View {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	v := &View{client: c, log: log, waiters: map[*waiter]struct{}{}, asks: make(chan struct{}, 1)}
	v.current.Store(emptySnapshot())
	return v
}

// Subscribe registers a listener for every batch, called from the view's own
// goroutine after the snapshot was published: it must not block, and so must not
// wait for the view, with WaitRev or for somebody who does. Only before Run.
func (v *View) Subscribe(listen func(Batch)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.running {
		panic("view: Subscribe after Run would miss changes")
	}
	v.subs = append(v.subs, listen)
}

// Run follows the store until ctx ends.
func (v *View) Run(ctx context.Context) error {
	v.mu.Lock()
	v.running = true
	v.mu.Unlock()
	return v.client.Follow(ctx, store.Root, &builder{view: v, keys: map[string]int64{}})
}

// Snapshot is the latest snapshot; an empty one with Rev 0 before the first list.
func (v *View) Snapshot() *Snapshot { return v.current.Load() }

// Synced waits until the first list has been read.
func (v *View) Synced(ctx context.Context) error {
	_, err := v.WaitRev(ctx, 1)
	return err
}

// ErrBehind marks the error of a wait that ran out of time while etcd was reachable: the view
// has not caught up with it.
var ErrBehind = errors.New("the view lags behind etcd")

// WaitRev waits until the snapshot is at or past a revision and every listener
// has heard what led there, so that whoever wrote it reads it back wherever it
// looks. Canceled or Unavailable when ctx ends first; the error is marked with ErrBehind, or
// with store.ErrUnreachable when etcd is away. Unavailable when etcd was restored from a
// backup meanwhile, so that the revision means nothing any more.
func (v *View) WaitRev(ctx context.Context, rev int64) (*Snapshot, error) {
	if v.heard.Load() >= rev {
		return v.Snapshot(), nil
	}
	w := &waiter{rev: rev, done: make(chan struct{})}
	v.mu.Lock()
	if v.heard.Load() >= rev {
		v.mu.Unlock()
		return v.Snapshot(), nil
	}
	v.waiters[w] = struct{}{}
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		delete(v.waiters, w)
		v.mu.Unlock()
	}()
	pause := askFirst
	ask := time.NewTimer(pause)
	defer ask.Stop()
	for {
		select {
		case <-w.done:
			return v.Snapshot(), errs.Wrap("view.WaitRev", w.err)
		case <-ctx.Done():
			return v.Snapshot(), errs.Wrap("view.WaitRev", v.unreached(rev, ctx.Err()))
		case <-ask.C:
			v.ask()
			pause = min(2*pause, askLast)
			ask.Reset(pause)
		}
	}
}

// unreached says why a revision was not reached when a wait for it ended with a context's error.
func (v *View) unreached(rev int64, ended error) error {
	if !errors.Is(ended, context.DeadlineExceeded) {
		return ended
	}
	if _, away := v.client.Away(); away {
		return fmt.Errorf("%w: %w", store.ErrUnreachable, ended)
	}
	return fmt.Errorf("%w: it is at revision %d, not yet at %d: %w", ErrBehind, v.heard.Load(), rev, ended)
}

// ask has etcd tell how far the watch has come.
func (v *View) ask() {
	select {
	case v.asks <- struct{}{}:
	default: // it is about to be asked
	}
}

// publish makes a snapshot the current one and tells everybody: the listeners
// first, then who waits for the revision, since a waiter may read what a listener keeps.
func (v *View) publish(b Batch) {
	defer trace.StartRegion(context.Background(), "view").End()
	v.current.Store(b.After)
	v.mu.Lock()
	subs := v.subs
	v.mu.Unlock()
	for _, listen := range subs {
		listen(b)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard.Store(b.After.Rev)
	for w := range v.waiters {
		if b.After.Rev < w.rev && b.Rewound {
			w.err = errRewound
		}
		if b.After.Rev >= w.rev || b.Rewound {
			close(w.done)
			delete(v.waiters, w)
		}
	}
}
