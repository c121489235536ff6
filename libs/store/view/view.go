package view

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/trace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// View follows the store. Create it with New, subscribe, then call Run.
type View struct {
	client *store.Client
	log    *slog.Logger
	// tables are the followed kinds, forks how their trees are copied.
	tables map[Kind]*kindTable
	forks  []func(*Snapshot)

	current atomic.Pointer[Snapshot]
	// heard is the revision up to which every listener has been called. It follows current and is
	// increased under mu.
	heard atomic.Int64
	// asks has a value when a caller has waited for a revision for a while.
	asks chan struct{}

	// mu guards the fields below.
	mu      sync.Mutex
	waiters map[*waiter]struct{}
	subs    []func(Batch)
	running bool
}

// waiter is a blocked WaitRev. err is set before done is closed if the revision will never arrive.
type waiter struct {
	rev  int64
	done chan struct{}
	err  error
}

const (
	// askFirst is how long a waiter waits before the watch's progress is requested: a revision of
	// a key outside the view comes without an event. It doubles up to askLast.
	askFirst = 50 * time.Millisecond
	askLast  = time.Second
)

var errRewound = errs.New(errs.Unavailable, "etcd went back in time, so the awaited revision no longer exists; retry")

// New returns a view that has seen nothing yet. It follows the given kinds, or every kind if none is
// given. The five kinds of an instance (see KindIntent) are followed together.
func New(c *store.Client, log *slog.Logger, kinds ...Kind) *View {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	v := &View{client: c, log: log, tables: kindTables(), waiters: map[*waiter]struct{}{}, asks: make(chan struct{}, 1)}
	if len(kinds) > 0 {
		maps.DeleteFunc(v.tables, func(k Kind, _ *kindTable) bool { return !slices.Contains(kinds, k) })
	}
	for _, t := range v.tables {
		v.forks = append(v.forks, t.forks...)
	}
	v.current.Store(v.fork(&Snapshot{definers: new(definers), bound: new(bound)}))
	return v
}

// Subscribe registers a listener for every batch. The view calls it from its own goroutine after
// the snapshot was published. The listener must not block, so it must not wait for the view,
// directly with WaitRev or indirectly. Call Subscribe before Run.
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
	return v.client.Follow(ctx, keys.Root, &builder{view: v, keys: map[string]int64{}, frees: true})
}

// Snapshot returns the latest snapshot. Before the first list it is empty with Rev 0.
func (v *View) Snapshot() *Snapshot { return v.current.Load() }

// Synced waits until the first list has been read.
func (v *View) Synced(ctx context.Context) error {
	_, err := v.WaitRev(ctx, 1)
	return err
}

// ErrBehind marks errors of waits that timed out while etcd was reachable: the view has not caught
// up with etcd.
var ErrBehind = errors.New("the view lags behind etcd")

// WaitRev waits until the snapshot has reached a revision and every listener has received it, so
// that a writer then sees its own write everywhere. The error is Canceled or Unavailable if ctx
// ends first, marked with ErrBehind, or with store.ErrUnreachable if etcd is away. It is also
// Unavailable if etcd was restored from a backup, so that the revision became meaningless.
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

// unreached returns why a revision was not reached when the context of a wait ended.
func (v *View) unreached(rev int64, ended error) error {
	if !errors.Is(ended, context.DeadlineExceeded) {
		return ended
	}
	if _, away := v.client.Away(); away {
		return fmt.Errorf("%w: %w", store.ErrUnreachable, ended)
	}
	return fmt.Errorf("%w: it is at revision %d, not yet at %d: %w", ErrBehind, v.heard.Load(), rev, ended)
}

// ask requests the progress of the watch.
func (v *View) ask() {
	select {
	case v.asks <- struct{}{}:
	default: // a request is already pending
	}
}

// publish makes a snapshot the current one, then calls the listeners, then wakes the waiters,
// because a waiter may read a listener's state.
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
