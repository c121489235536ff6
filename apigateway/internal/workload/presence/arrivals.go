package presence

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/view"
)

// atOnce is the maximum random delay before an arrival is handled: all gateways see it, but one of them is
// enough.
const atOnce = 300 * time.Millisecond

// Arrivals removes transfers of players who have arrived, and expired transfers.
type Arrivals struct {
	// View has the players and transfers. End removes a transfer.
	View *view.View
	End  func(context.Context, *players.Transfer) error
	Log  *slog.Logger
	Now  func() time.Time
	wake chan struct{}
}

// NewArrivals returns Arrivals. Start Run and subscribe OnBatch to the view.
func NewArrivals(a Arrivals) *Arrivals {
	a.wake = make(chan struct{}, 1)
	return &a
}

// OnBatch checks the transfers again when a player or a transfer changed.
func (a *Arrivals) OnBatch(b view.Batch) {
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

// look removes finished transfers and returns the time until the next check.
func (a *Arrivals) look(ctx context.Context) time.Duration {
	s, now := a.View.Snapshot(), a.Now()
	next := players.TransferLife
	for id, t := range s.Transfers.All() {
		p, there := players.MergePresence(s.PresencesOf(id), s.Tells)
		switch over := t.Over(now); {
		case over && !(there && p.Server == t.Target):
			a.Log.Info("a player's transfer expired before the player arrived", "player", id, "target", t.Target, "by", t.By)
			fallthrough
		case there && p.Server == t.Target:
			if err := a.End(ctx, t); err != nil && ctx.Err() == nil {
				a.Log.Warn("cannot remove a finished transfer, retrying later", "player", id, "error", err)
				next = min(next, time.Minute)
			}
		default:
			next = min(next, max(time.Second, t.At.Add(players.TransferLife).Sub(now)))
		}
	}
	return next
}
