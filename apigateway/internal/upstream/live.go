package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// liveBudget is how long live figures are waited for: what shows them has the last
	// reported ones too.
	liveBudget = 150 * time.Millisecond
	// liveFor is how old figures may be that are shown as live.
	liveFor = time.Second
	// maxFigures bounds the instances whose figures are remembered, twice.
	maxFigures = 16_384
)

// figures remembers instances' live figures for a moment, so that an agent is asked once
// whoever looks at an instance, and however many do.
type figures struct {
	mu sync.Mutex
	// Those that were asked for lately are in young. It becomes old when it is full.
	young, old map[fleet.InstanceID]*figure
}

// figure is what one question came to.
type figure struct {
	// of is what the instance was in when it was asked for.
	of    *fleet.Status
	asked time.Time
	// done is closed when the rest is there.
	done chan struct{}
	live Live
	err  error
}

func newFigures() *figures { return &figures{young: map[fleet.InstanceID]*figure{}} }

// get are an instance's figures: those that ask comes to, or what it came to for somebody
// else less than liveFor ago.
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

// answer asks. Others wait for it too, so it does not end with who happens to be the first.
func (f *figure) answer(ctx context.Context, ask func(context.Context) (Live, error)) {
	defer close(f.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveBudget)
	defer cancel()
	f.live, f.err = ask(ctx)
}

// of is the latest question for an instance; mine is true when the caller is to ask it.
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

// forget has an instance's figures asked for anew.
func (f *figures) forget(id fleet.InstanceID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.young, id)
	delete(f.old, id)
}
