package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Replica keeps one replica of a service alive in etcd: its session, and with
// Claim the shards it owns, all on one lease. When the session is lost it opens a
// new one; until then it owns nothing.
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
	// Claim makes the replica own shards of its service.
	Claim bool
	// Gained is called with the current ownership after every change of it, from
	// Run's goroutine; it must not block. Optional.
	Gained func(*Ownership)
	Log    *slog.Logger

	owned atomic.Pointer[Ownership]
}

// Ownership is the set of shards a replica owns, with their fences. Nil owns nothing.
type Ownership struct {
	fences [fleet.ShardCount]Fence
	done   <-chan struct{}
}

// Fence is the fence of a group's shard. ok is false when the shard is not owned
// or the session is over.
func (o *Ownership) Fence(g fleet.GroupName) (Fence, bool) {
	if o == nil {
		return Fence{}, false
	}
	select {
	case <-o.done:
		return Fence{}, false
	default:
	}
	f := o.fences[fleet.ShardOf(g)]
	return f, f.createRev != 0
}

// Epoch is the highest fencing token among the owned shards: decisions need a
// view at or past it. 0 when nothing is owned.
func (o *Ownership) Epoch() int64 {
	if o == nil {
		return 0
	}
	var m int64
	for _, f := range o.fences {
		m = max(m, f.createRev)
	}
	return m
}

// Count is the number of owned shards.
func (o *Ownership) Count() int {
	n := 0
	if o != nil {
		for _, f := range o.fences {
			if f.createRev != 0 {
				n++
			}
		}
	}
	return n
}

// Owned is the current ownership; nil before the first and after the last session.
func (r *Replica) Owned() *Ownership { return r.owned.Load() }

// Run keeps the replica alive until ctx ends, then closes its session so that
// others take over at once.
func (r *Replica) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.live(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("session not open, trying again", "service", r.Self.Service, "error", err)
			wait(ctx, time.Second)
		}
	}
	return ctx.Err()
}

// live opens a session and claims shards until the session or ctx ends.
func (r *Replica) live(ctx context.Context) error {
	s, err := OpenSession(ctx, r.Client, SessionKey(r.Self.Service, r.Self.Replica), r.Self, r.TTL, r.Takeover)
	if err != nil {
		return errs.Wrap("store.Replica", err)
	}
	r.Takeover = true // from here on the holder of this name is ourselves
	defer func() {
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

// claim takes every shard that nobody holds, now and whenever one becomes free.
func (r *Replica) claim(ctx context.Context, s *Session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	free := &freeShards{changed: make(chan struct{}, 1)}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		_ = r.Client.Follow(ctx, Shards(r.Self.Service).String(), free)
	}()
	defer func() { cancel(); <-followed }()

	own := &Ownership{done: s.Done()}
	for {
		next := *own
		if r.take(ctx, s, &next) {
			own = &next
			r.set(own)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Done():
			return nil
		case <-free.changed:
		}
	}
}

// take creates the shard keys that do not exist, as many per transaction as fit,
// and reports whether it gained any. A batch that met somebody else's key is tried one by one.
func (r *Replica) take(ctx context.Context, s *Session, o *Ownership) bool {
	gained := false
	value := fleet.Shard{Service: r.Self.Service, Replica: r.Self.Replica}
	commit := func(shards []int) error {
		t := Txn{Fences: []Fence{s.Fence()}}
		for _, n := range shards {
			t.Writes = append(t.Writes, OnSession(s, ShardKey(r.Self.Service, n), value))
		}
		rev, err := r.Client.Commit(ctx, t)
		if err == nil {
			for _, n := range shards {
				o.fences[n] = FenceOf(ShardKey(r.Self.Service, n), rev)
			}
			gained = true
		}
		return err
	}
	var missing []int
	for n := range fleet.ShardCount {
		if o.fences[n].createRev == 0 {
			missing = append(missing, n)
		}
	}
	if len(missing) == 0 || commit(missing) == nil {
		return gained
	}
	for _, n := range missing {
		if err := commit([]int{n}); err != nil && !errs.Is(err, errs.AlreadyExists) {
			break
		}
	}
	return gained
}

// freeShards wakes the claimer when a shard key went away.
type freeShards struct{ changed chan struct{} }

func (f *freeShards) Reset([]KeyValue, int64) { f.wake() }

func (f *freeShards) Apply(changes []Change, _ int64) {
	for _, c := range changes {
		if c.Removed {
			f.wake()
			return
		}
	}
}

func (f *freeShards) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
