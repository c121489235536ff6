// Package singleflight shares the result of an operation among concurrent callers.
package singleflight

import (
	"context"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
)

// Group is a set of running operations by name. It is safe for concurrent use. Create it
// with New.
type Group struct {
	room chan struct{} // semaphore of running operations

	mu   sync.Mutex
	busy map[string]*flight
}

type flight struct {
	done chan struct{} // closed at the end
	err  error         // valid after done is closed
	left bool          // the goroutine that ran it gave up
}

// New returns a Group that runs at most most operations concurrently.
func New(most int) *Group {
	return &Group{room: make(chan struct{}, most), busy: map[string]*flight{}}
}

// Once runs do, or waits for the running operation of that name and returns its error. If
// that one's caller gave up, Once runs do itself. It returns Canceled or Unavailable when
// ctx ends first.
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
	defer func() { // also after a panic, so that no caller waits for ever
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
