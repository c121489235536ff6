package allocationops

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// atOnce is the maximum random delay before expired claims are removed: all gateways see them, but
	// one of them is enough.
	atOnce = 300 * time.Millisecond
	// retryAfter is the wait after a failed removal.
	retryAfter = 5 * time.Second
)

// expiry knows when claims end. Their age counts from when this gateway saw them, so a wrong clock of
// another gateway ends none early.
type expiry struct {
	wake chan struct{}

	mu sync.Mutex
	// ends has the time at which each claim with a limited time ends, by this gateway's clock.
	ends map[term]time.Time
	// heard is set once the view's first list was processed.
	heard bool
}

// term is one claim as of its last renewal.
type term struct {
	instance fleet.InstanceID
	id       string
	at       int64 // Claim.At, in nanoseconds
}

func newExpiry() expiry { return expiry{wake: make(chan struct{}, 1), ends: map[term]time.Time{}} }

// OnClaims notes when claims end.
func (o *Allocations) OnClaims(b view.Batch) {
	now, noted := o.Now(), false
	o.expiry.mu.Lock()
	defer o.expiry.mu.Unlock()
	for _, c := range b.Changes {
		if c.Kind == view.KindClaims {
			noted = true
			o.note(c, now)
		}
	}
	o.heard = true
	if noted {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
}

// note updates the ends for one record. The caller holds the lock.
func (o *Allocations) note(c view.Change, now time.Time) {
	stay := map[term]bool{}
	if after, ok := c.After.(*allocation.Claims); ok && after != nil {
		for _, claim := range after.Claims {
			if claim.TTLSeconds == 0 {
				continue
			}
			t := termOf(after.Instance, claim)
			stay[t] = true
			if _, known := o.ends[t]; known {
				continue
			}
			since := now
			if !o.heard && claim.At.Before(now) { // it was claimed before this gateway started
				since = claim.At
			}
			o.ends[t] = since.Add(time.Duration(claim.TTLSeconds) * time.Second)
		}
	}
	if before, ok := c.Before.(*allocation.Claims); ok && before != nil {
		for _, claim := range before.Claims {
			if t := termOf(before.Instance, claim); !stay[t] {
				delete(o.ends, t)
			}
		}
	}
}

func termOf(i fleet.InstanceID, c allocation.Claim) term { return term{i, c.ID, c.At.UnixNano()} }

// ExpireAllocations removes expired claims until ctx ends.
func (o *Allocations) ExpireAllocations(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-timer.C:
			if !pause.For(ctx, rand.N(atOnce)) {
				return
			}
		}
		if next := o.expire(ctx); next > 0 {
			timer.Reset(next)
		}
	}
}

// expire removes the expired claims and returns the time until the next one ends, 0 if there is no further
// one.
func (o *Allocations) expire(ctx context.Context) (next time.Duration) {
	now := o.Now()
	over := map[fleet.InstanceID][]term{}
	o.expiry.mu.Lock()
	for t, end := range o.ends {
		switch wait := end.Sub(now); {
		case wait <= 0:
			over[t.instance] = append(over[t.instance], t)
		case next == 0 || wait < next:
			next = wait
		}
	}
	o.expiry.mu.Unlock()
	for id, terms := range over {
		if err := o.remove(ctx, id, terms); err != nil {
			if ctx.Err() != nil {
				return 0
			}
			o.Log.Warn("cannot remove expired allocations, retrying soon", "instance", id, "error", err)
			next = retryAfter
		}
	}
	return next
}

// remove removes claims from an instance's record.
func (o *Allocations) remove(ctx context.Context, id fleet.InstanceID, terms []term) error {
	_, err := o.Mutate(ctx, txn.Actor{}, func(s *view.Snapshot) (txn.Change, error) {
		have, ok := s.Claims.Get(id)
		if !ok {
			return txn.Change{}, nil
		}
		next := *have
		next.Claims = slices.DeleteFunc(slices.Clone(have.Claims), func(c allocation.Claim) bool { return slices.Contains(terms, termOf(id, c)) })
		switch len(next.Claims) {
		case len(have.Claims):
			return txn.Change{}, nil
		case 0:
			return txn.Change{Writes: []store.Write{store.Remove(keys.Claims(id), have.ModRev)}}, nil
		}
		return txn.Change{Writes: []store.Write{store.Replace(keys.Claims(id), next, have.ModRev)}}, nil
	})
	return err
}
