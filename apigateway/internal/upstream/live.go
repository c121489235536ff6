package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// liveBudget limits the wait for live figures; callers fall back to the last reported ones.
	liveBudget = 150 * time.Millisecond
	// liveFor is the maximum age of figures that count as live.
	liveFor = time.Second
	// maxFigures limits each of the two generations of cached figures.
	maxFigures = 16_384
)

// figures caches instances' live figures briefly, so that concurrent viewers cause one call.
type figures struct {
	mu sync.Mutex
	// young has the recent entries. When it is full, it replaces old.
	young, old map[fleet.InstanceID]*figure
}

// figure is the result of one call.
type figure struct {
	// of is the instance's status at the time of the call.
	of    *fleet.Status
	asked time.Time
	// done is closed when the result is available.
	done chan struct{}
	live Live
	err  error
}

func newFigures() *figures { return &figures{young: map[fleet.InstanceID]*figure{}} }

// get returns an instance's figures, from ask or from a call less than liveFor ago.
func (f *figures) get(ctx context.Context, i *fleet.Instance, ask func(context.Context) (Live, error)) (Live, error) {
	one, mine := f.of(i)
	if mine {
		one.answer(ctx, ask)
		return one.live, one.err
	}
	select {
	case <-one.done:
		return one.live, one.err
	case <-ctx.Done():
		return Live{}, errs.Wrap("upstream.Live", ctx.Err())
	}
}

// answer calls ask. Others wait for the result too, so it does not end with the first caller's context.
func (f *figure) answer(ctx context.Context, ask func(context.Context) (Live, error)) {
	defer close(f.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveBudget)
	defer cancel()
	f.live, f.err = ask(ctx)
}

// of returns the latest call for an instance. mine is true if the caller has to make it.
func (f *figures) of(i *fleet.Instance) (one *figure, mine bool) {
	id, now := i.Intent.ID, time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	one, ok := f.young[id]
	if !ok {
		one, ok = f.old[id]
	}
	if ok && one.of == i.Status && now.Sub(one.asked) < liveFor {
		return one, false
	}
	if len(f.young) >= maxFigures {
		f.old, f.young = f.young, map[fleet.InstanceID]*figure{}
	}
	one = &figure{of: i.Status, asked: now, done: make(chan struct{})}
	f.young[id] = one
	return one, true
}

// forget drops an instance's cached figures.
func (f *figures) forget(id fleet.InstanceID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.young, id)
	delete(f.old, id)
}
