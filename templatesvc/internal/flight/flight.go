// Package flight has the same thing done once for all who want it at the same time.
package flight

import (
	"context"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
)

// Group is things under way, by name. It is safe for concurrent use. Make it with New.
type Group struct {
	room chan struct{} // a place for each that may be under way

	mu   sync.Mutex
	busy map[string]*flight
}

type flight struct {
	done chan struct{} // closed at its end
	err  error         // to be read after that
	left bool          // whoever did it gave up
}

// New makes a group that does at most so many things at once.
func New(most int) *Group {
	return &Group{room: make(chan struct{}, most), busy: map[string]*flight{}}
}

// Once does what somebody may be doing already: then it waits for that, and does it
// itself only if the other gave up. Canceled or Unavailable when ctx ends first.
func (g *Group) Once(ctx context.Context, name string, do func() error) error {
	for {
		one, mine := g.join(name)
		if mine {
			return g.do(ctx, name, one, do)
		}
		select {
		case <-one.done:
		case <-ctx.Done():
			return errs.Wrap("flight.Once", ctx.Err())
		}
		if !one.left {
			return one.err
		}
	}
}

func (g *Group) do(ctx context.Context, name string, one *flight, do func() error) error {
	defer func() { // also when it panics: nobody waits for ever
		one.left = one.left || ctx.Err() != nil
		g.mu.Lock()
		delete(g.busy, name)
		g.mu.Unlock()
		close(one.done)
	}()
	select {
	case g.room <- struct{}{}:
	case <-ctx.Done():
		one.err = errs.Wrap("flight.Once", ctx.Err())
		return one.err
	}
	defer func() { <-g.room }()
	one.left = true
	one.err = do()
	one.left = false
	return one.err
}

func (g *Group) join(name string) (one *flight, mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one = g.busy[name]; one != nil {
		return one, false
	}
	one = &flight{done: make(chan struct{})}
	g.busy[name] = one
	return one, true
}
