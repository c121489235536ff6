// Package drains continues the drains of nodes: it moves static instances if the drain asks for that,
// completes the drain once no instance is left, and tells the players whose instances are stopped.
//
// Every gateway does this, so a drain continues when a gateway ends. The first one writes that the
// drain is complete. Several may ask the same agent to shut down, which does no harm.
package drains

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// workers is the number of nodes completed concurrently.
	workers = 4
	// resync is how often all draining nodes are checked again, in case a change was missed.
	resync = 10 * time.Minute
)

// Config has what a Completer needs. All fields are required.
type Config struct {
	View *view.View
	// Continue moves the static instances of a draining node that have ended, and completes the drain
	// if nothing is left on the node.
	Continue func(ctx context.Context, node fleet.NodeID) error
	// Tell sends the kick messages of drains to the players of instances that are being stopped. It
	// must not block.
	Tell func([]Stopped)
	Log  *slog.Logger
}

// Stopped is an instance that is being stopped for a drain with a kick message.
type Stopped struct {
	Instance *fleet.Instance
	Drain    fleet.NodeDrain
}

// Completer completes drains. Create it with New.
type Completer struct {
	view  *view.View
	tell  func([]Stopped)
	queue *reconcile.Queue[fleet.NodeID]
}

// New returns a Completer. Subscribe its OnBatch to the view.
func New(cfg Config) *Completer {
	c := &Completer{view: cfg.View, tell: cfg.Tell}
	c.queue = reconcile.New(reconcile.Options[fleet.NodeID]{
		Name: "drains", Workers: workers, Backoff: reconcile.Backoff{Base: time.Second, Max: time.Minute},
		Reconcile: func(ctx context.Context, node fleet.NodeID) (reconcile.Result, error) {
			return reconcile.Result{}, cfg.Continue(ctx, node)
		},
		Resync: resync, Keys: func() iter.Seq[fleet.NodeID] { return Draining(cfg.View.Snapshot()) },
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Log: cfg.Log,
	})
	return c
}

// Run works until ctx ends.
func (c *Completer) Run(ctx context.Context) {
	for node := range Draining(c.view.Snapshot()) {
		c.queue.Add(node)
	}
	_ = c.queue.Run(ctx) // ends with ctx
}

// OnBatch looks at the draining nodes that a batch concerns.
func (c *Completer) OnBatch(b view.Batch) {
	var all []Stopped
	for i := range b.Changes {
		if stopped := stoppedFor(&b.Changes[i]); stopped != nil {
			d, _ := b.After.NodesDesired.Get(stopped.Node())
			if now := d.Draining(); now != nil && now.KickMessage != "" {
				all = append(all, Stopped{stopped, *now})
			}
		}
		for node := range nodesOf(&b.Changes[i]) {
			if d, _ := b.After.NodesDesired.Get(node); d.Draining() != nil {
				c.queue.Add(node)
			}
		}
	}
	if len(all) > 0 {
		c.tell(all)
	}
}

// stoppedFor returns the instance that a change stops for a drain while players may be on it, or nil.
func stoppedFor(ch *view.Change) *fleet.Instance {
	before, after := ch.InstanceBefore, ch.Instance
	if ch.Kind != view.KindIntent || before == nil || after == nil || before.Intent.Desired != fleet.DesiredRunning || before.State() != fleet.Online {
		return nil
	}
	if stop := after.Intent.Stop; after.Intent.Desired == fleet.DesiredStopped && stop != nil && stop.Reason == fleet.ReasonNodeDrained {
		return after
	}
	return nil
}

// nodesOf returns the nodes whose drain may be complete because of a change.
func nodesOf(ch *view.Change) iter.Seq[fleet.NodeID] {
	return func(yield func(fleet.NodeID) bool) {
		switch {
		case ch.Kind == view.KindMove:
			for _, record := range []any{ch.Before, ch.After} {
				if m, ok := record.(*move.Move); ok && (!yield(m.Source) || !yield(m.Target)) {
					return
				}
			}
		case ch.Kind == view.KindNodeDesired, ch.Kind == view.KindSession && ch.Key[0] == "node":
			yield(fleet.NodeID(ch.Key[len(ch.Key)-1]))
		case ch.JoinedBefore != nil:
			if node, _ := ch.JoinedBefore.Held(); node != "" {
				yield(node)
			}
		}
	}
}

// Count returns the number of nodes whose drain is not complete.
func Count(s *view.Snapshot) (n int) {
	for range Draining(s) {
		n++
	}
	return n
}

// Draining returns the nodes whose drain is not complete.
func Draining(s *view.Snapshot) iter.Seq[fleet.NodeID] {
	return func(yield func(fleet.NodeID) bool) {
		for node, d := range s.NodesDesired.All() {
			if d.Draining() != nil && !yield(node) {
				return
			}
		}
	}
}
