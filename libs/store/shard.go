package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Replica keeps one replica of a service alive in etcd: its session and, with Claim, its share of
// the shards, all with one lease. When the session is lost, it opens a new one; until then it owns
// nothing. If another process has the replica's name, it waits, because two processes with the
// same name would otherwise end each other forever.
//
// The live replicas share the shards evenly. A joining replica gets its share at once. The shards
// of a leaving replica are claimed as soon as its session is gone: at once after a clean stop,
// otherwise within the TTL. If an owner is alive but does not claim its shard for 1 to 1.25 TTLs,
// another replica holds it until that owner rewrites its session record or its session ends.
type Replica struct {
	Client *Client
	// Self is the record under the session key.
	Self cluster.Session
	// TTL is the session's TTL. 0 means DefaultTTL.
	TTL time.Duration
	// Takeover revokes a predecessor's session of the same name. The caller must have proof that
	// the predecessor is gone, such as a lock on a data directory.
	Takeover bool
	// Claim makes the replica own its share of the service's shards.
	Claim bool
	// Gained is called with the current ownership after every change, from Run's goroutine. It
	// must not block. It may be nil.
	Gained func(*Ownership)
	Log    *slog.Logger

	owned atomic.Pointer[Ownership]
	alive atomic.Int64
	last  *Session // the latest session, owned by Run's goroutine
	figures
}

// reopenPause is the longest pause after opening a session failed.
const reopenPause = 500 * time.Millisecond

// Owned returns the current ownership. It is nil without a session.
func (r *Replica) Owned() *Ownership { return r.owned.Load() }

// Run keeps the replica alive until ctx ends, then closes its session so that others take over at
// once.
func (r *Replica) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.live(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case errs.Is(err, errs.AlreadyExists): // its own before a restart, mostly
			r.Log.Warn("another process has a session with this replica's name: waiting until it ends",
				"service", r.Self.Service, "replica", r.Self.Replica)
			r.Client.awaitGone(ctx, keys.Session(r.Self.Service, r.Self.Replica).String())
		default:
			r.Log.Warn("cannot open a session, retrying", "service", r.Self.Service, "error", err)
			pause.Jittered(ctx, reopenPause)
		}
	}
	return ctx.Err()
}

// live opens a session and claims shards until the session or ctx ends.
func (r *Replica) live(ctx context.Context) error {
	if r.last != nil {
		// While etcd was away, the lease could not be revoked. After an election etcd extends it
		// by a whole TTL, and this replica would wait for its own former session.
		if err := r.Client.endLease(ctx, r.last.lease); err != nil {
			return errs.Wrap("store.Replica", err)
		}
		r.last = nil
	}
	s, err := OpenSession(ctx, r.Client, keys.Session(r.Self.Service, r.Self.Replica), r.Self, r.TTL, r.Takeover)
	if err != nil {
		return errs.Wrap("store.Replica", err)
	}
	r.Takeover, r.last = false, s // the proof only covers the predecessor
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
