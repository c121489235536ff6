package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Replica keeps one replica of a service alive in etcd: its session, and with
// Claim the shards it owns, all on one lease. When the session is lost it opens a
// new one; until then it owns nothing. A stranger that took the name meanwhile is
// left alone: two processes with one name would otherwise end each other for ever.
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
	last  *Session // the latest session, owned by Run's goroutine
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
	if r.last != nil { // it may have been etcd that was away when it was closed
		r.Client.revoke(ctx, r.last.lease)
	}
	s, err := OpenSession(ctx, r.Client, SessionKey(r.Self.Service, r.Self.Replica), r.Self, r.TTL, r.Takeover)
	if err != nil {
		return errs.Wrap("store.Replica", err)
	}
	r.Takeover, r.last = false, s // the proof was about the predecessor, not about who comes later
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
		err := r.take(ctx, s, &next)
		if next != *own {
			own = &next
			r.set(own)
		}
		var again <-chan time.Time
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("shards not claimed yet, trying again", "service", r.Self.Service, "error", err)
			again = time.After(claimPause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Done():
			return nil
		case <-free.changed:
		case <-again:
		}
	}
}

const (
	// claimPause is the wait after shards could not be claimed for etcd's sake.
	claimPause = 250 * time.Millisecond
	// claimRaces is how often a claim that met somebody else's is repeated at once.
	claimRaces = 5
)

// take creates the shard keys that do not exist. What stands on the session's own
// lease is ours, also when the answer to the claim was lost.
func (r *Replica) take(ctx context.Context, s *Session, o *Ownership) error {
	ctx, cancel := context.WithTimeout(ctx, s.ttl)
	defer cancel()
	var err error
	for range claimRaces {
		var missing []int
		if missing, err = r.survey(ctx, s, o); err != nil || len(missing) == 0 {
			return err
		}
		t := Txn{Fences: []Fence{s.Fence()}}
		for _, n := range missing {
			value := fleet.Shard{Service: r.Self.Service, Replica: r.Self.Replica}
			t.Writes = append(t.Writes, OnSession(s, ShardKey(r.Self.Service, n), value))
		}
		var rev int64
		if rev, err = r.Client.Commit(ctx, t); err == nil {
			for _, n := range missing {
				o.fences[n] = FenceOf(ShardKey(r.Self.Service, n), rev)
			}
			return nil
		}
		if !errs.Is(err, errs.AlreadyExists) {
			return errs.Wrap("store.take", err)
		}
	}
	return errs.Wrap("store.take", err)
}

// survey notes the shards that are the session's, and returns those that are nobody's.
func (r *Replica) survey(ctx context.Context, s *Session, o *Ownership) (missing []int, err error) {
	resp, err := r.Client.etcd.Get(ctx, Shards(r.Self.Service).String(), clientv3.WithPrefix())
	if err != nil {
		return nil, wrap("store.survey", err)
	}
	held := map[string]int64{} // by key, the create-revision of ours, 0 for others
	for _, kv := range resp.Kvs {
		held[string(kv.Key)] = 0
		if clientv3.LeaseID(kv.Lease) == s.lease {
			held[string(kv.Key)] = kv.CreateRevision
		}
	}
	for n := range fleet.ShardCount {
		key := ShardKey(r.Self.Service, n)
		rev, exists := held[key.String()]
		o.fences[n] = Fence{}
		switch {
		case !exists:
			missing = append(missing, n)
		case rev != 0:
			o.fences[n] = FenceOf(key, rev)
		}
	}
	return missing, nil
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
