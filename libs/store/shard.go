package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
)

// Replica keeps one replica of a service alive in etcd: its session, and with
// Claim its share of the shards, all on one lease. When the session is lost it
// opens a new one; until then it owns nothing. A stranger that took the name
// meanwhile is left alone: two processes with one name would otherwise end each
// other for ever.
//
// The live replicas share the shards evenly. One that joins is given what is its
// own now; what one leaves behind is claimed as soon as its session is gone: at
// once after a clean stop, within the TTL otherwise. A shard whose owner lives
// but does not claim it for a TTL and up to a quarter of one is held by another
// replica until that owner speaks up, by writing its session record anew, or its
// session ends.
type Replica struct {
	// Client is the store.
	Client *Client
	// Self is the record under the session key.
	Self fleet.Session
	// TTL of the session. 0 means DefaultTTL.
	TTL time.Duration
	// Takeover revokes a predecessor's session of the same name: only for whoever
	// holds proof, such as a data directory's lock, that the predecessor is gone.
	Takeover bool
	// Claim makes the replica own its share of the shards of its service.
	Claim bool
	// Gained is called with the current ownership after every change of it, from
	// Run's goroutine; it must not block. Optional.
	Gained func(*Ownership)
	Log    *slog.Logger

	owned atomic.Pointer[Ownership]
	alive atomic.Int64
	last  *Session // the latest session, owned by Run's goroutine
	figures
}

// reopenPause is the longest pause after a session could not be opened.
const reopenPause = 500 * time.Millisecond

// Owned is the current ownership; nil before the first and after the last session.
func (r *Replica) Owned() *Ownership { return r.owned.Load() }

// Run keeps the replica alive until ctx ends, then closes its session so that
// others take over at once.
func (r *Replica) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.live(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case errs.Is(err, errs.AlreadyExists): // its own before a restart, mostly
			r.Log.Warn("another process has this replica's session, or had until its end: waiting for it to go",
				"service", r.Self.Service, "replica", r.Self.Replica)
			r.Client.awaitGone(ctx, SessionKey(r.Self.Service, r.Self.Replica).String())
		default:
			r.Log.Warn("session not open, trying again", "service", r.Self.Service, "error", err)
			pause.Jittered(ctx, reopenPause)
		}
	}
	return ctx.Err()
}

// live opens a session and shares the shards until the session or ctx ends.
func (r *Replica) live(ctx context.Context) error {
	if r.last != nil {
		// While etcd was away nobody could end the lease. Etcd gives it a whole TTL again
		// after an election, and this replica would wait for its own former session.
		if err := r.Client.endLease(ctx, r.last.lease); err != nil {
			return errs.Wrap("store.Replica", err)
		}
		r.last = nil
	}
	s, err := OpenSession(ctx, r.Client, SessionKey(r.Self.Service, r.Self.Replica), r.Self, r.TTL, r.Takeover)
	if err != nil {
		return errs.Wrap("store.Replica", err)
	}
	r.Takeover, r.last = false, s // the proof was about the predecessor, not about who comes later
	defer func() {
		r.alive.Store(0)
		r.set(nil)
		s.Close(context.WithoutCancel(ctx))
	}()
	if !r.Claim {
		select {
		case <-s.Done():
		case <-ctx.Done():
		}
		return nil
	}
	return r.claim(ctx, s)
}

func (r *Replica) set(o *Ownership) {
	r.owned.Store(o)
	if r.Gained != nil {
		r.Gained(o)
	}
}
