package lifecycle

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Gates tracks whether a service is ready: it is when every gate is open. The zero value has no
// gates and is ready. It is safe for concurrent use.
type Gates struct {
	mu   sync.Mutex
	open map[string]bool
	// changed is closed and replaced at every change to wake Wait. It is nil if no Wait is
	// blocked.
	changed chan struct{}
}

// Gate is one condition of readiness, created by Gates.Gate.
type Gate struct {
	gates *Gates
	name  string
}

// Gate adds a closed gate, or returns the existing one of that name.
func (g *Gates) Gate(name string) *Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(map[string]bool)
	}
	if _, known := g.open[name]; !known {
		g.open[name] = false
		g.wake()
	}
	return &Gate{gates: g, name: name}
}

// Open opens the gate. Opening an open gate does nothing.
func (g *Gate) Open() { g.gates.set(g.name, true) }

// Close closes the gate. Closing a closed gate does nothing.
func (g *Gate) Close() { g.gates.set(g.name, false) }

func (g *Gates) set(name string, open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[name] != open {
		g.open[name] = open
		g.wake()
	}
}

// wake requires mu.
func (g *Gates) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// Ready reports whether all gates are open, and returns the sorted names of the closed ones.
func (g *Gates) Ready() (ready bool, closed []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ready()
}

func (g *Gates) ready() (bool, []string) {
	var closed []string
	for _, name := range slices.Sorted(maps.Keys(g.open)) {
		if !g.open[name] {
			closed = append(closed, name)
		}
	}
	return len(closed) == 0, closed
}

// Wait blocks until all gates are open at the same time, or returns the cause of ctx's end.
func (g *Gates) Wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		ready, _ := g.ready()
		if !ready && g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Component returns a component that opens the gate "started". As the last component in Run it
// opens when everything before it has started and closes first on shutdown, so a stopping service
// is not ready before it refuses its first request.
func (g *Gates) Component() Component {
	gate := g.Gate("started")
	return Component{
		Name:  "readiness",
		Start: func(context.Context) error { gate.Open(); return nil },
		Stop:  func(context.Context) error { gate.Close(); return nil },
	}
}
