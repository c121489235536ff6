package presence

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/view"
)

// atOnce is the longest pause before an arrival is noted: all gateways see it, and one of them is
// enough.
const atOnce = 300 * time.Millisecond

// Arrivals removes transfers of players who are there, and those whose time is over.
type Arrivals struct {
	// View is what it looks at; End removes a transfer.
	View *view.View
	End  func(context.Context, *fleet.Transfer) error
	Log  *slog.Logger
	Now  func() time.Time
	wake chan struct{}
}

// NewArrivals is an Arrivals that waits for Run. Subscribe its Hear to the view.
func NewArrivals(a Arrivals) *Arrivals {
	a.wake = make(chan struct{}, 1)
	return &a
}

// Hear looks again when a player or a transfer changed.
func (a *Arrivals) Hear(b view.Batch) {
	if b.After.Transfers.Len() == 0 {
		return
	}
	for _, c := range b.Changes {
		if c.Kind != view.KindPlayers && c.Kind != view.KindTransfer {
			continue
		}
		select {
		case a.wake <- struct{}{}:
		default:
		}
		return
	}
}

// Run works until ctx ends.
func (a *Arrivals) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		}
		if !pause.For(ctx, rand.N(atOnce)) {
			return
		}
		timer.Reset(a.look(ctx))
	}
}

// look ends what has come to its end, and tells when the next one does at the latest.
func (a *Arrivals) look(ctx context.Context) time.Duration {
	s, now := a.View.Snapshot(), a.Now()
	next := fleet.TransferLife
	for id, t := range s.Transfers.All() {
		p, there := fleet.MergePresence(s.PresencesOf(id), s.Tells)
		switch over := t.Over(now); {
		case over && !(there && p.Server == t.Target):
			a.Log.Info("a transfer of a player is given up: the player did not come", "player", id, "target", t.Target, "by", t.By)
			fallthrough
		case there && p.Server == t.Target:
			if err := a.End(ctx, t); err != nil && ctx.Err() == nil {
				a.Log.Warn("a transfer that is over is not removed, trying again later", "player", id, "error", err)
				next = min(next, time.Minute)
			}
		default:
			next = min(next, max(time.Second, t.At.Add(fleet.TransferLife).Sub(now)))
		}
	}
	return next
}
