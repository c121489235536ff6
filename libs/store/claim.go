package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/sharding"
)

const (
	// claimPause and claimPauseLimit bound the jittered, doubling pause after claiming or
	// releasing shards failed, because of a conflict or because etcd is away.
	claimPause, claimPauseLimit = 20 * time.Millisecond, 2 * time.Second
	// claimNet is the interval at which the shards are checked even without a change.
	claimNet = time.Minute
)

// claim maintains the replica's share of the shards until the session or ctx ends. Events only
// trigger a round; each round is one consistent read.
func (r *Replica) claim(ctx context.Context, s *Session) error {
	changed, stop := r.follow(ctx)
	defer stop()
	d := &sharding.Decider{Self: r.Self.Replica, Patience: s.ttl + rand.N(s.ttl/4)}
	for fails := 0; ; {
		wait, err := r.round(ctx, s, d)
		switch {
		case err == nil:
			fails = 0
		case ctx.Err() != nil, errs.Is(err, errs.Fenced):
			return nil // the session is over, even if it has not noticed yet
		default:
			wait = rand.N(min(claimPause<<min(fails, 10), claimPauseLimit)) + time.Millisecond
			fails++
			r.complain(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil || closed(s.Done()) {
			return nil
		}
	}
}

// complain logs why the shards are not in order. Conflicts are normal.
func (r *Replica) complain(err error) {
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists) {
		r.Log.Debug("shards changed concurrently, retrying", "service", r.Self.Service, "error", err)
		return
	}
	r.Log.Warn("cannot claim or release shards, retrying", "service", r.Self.Service, "error", err)
}

// follow signals changes of the service's sessions and shards.
func (r *Replica) follow(ctx context.Context) (changed <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	w := make(waker, 1)
	done := make(chan struct{}, 2)
	for _, prefix := range []string{keys.Sessions(r.Self.Service).String(), keys.Shards(r.Self.Service).String()} {
		go func() {
			defer func() { done <- struct{}{} }()
			_ = r.Client.Follow(ctx, prefix, w) // it ends only when asked to
		}()
	}
	return w, func() { cancel(); <-done; <-done }
}

// round reads the state once and acts on it. It returns when to run again if nothing changes. The
// error is Fenced if the session is over.
//
// A shard that is no longer ours leaves the ownership before its key is removed, so that nothing
// new is started under it. Writes already in flight fail at the fence.
func (r *Replica) round(ctx context.Context, s *Session, d *sharding.Decider) (time.Duration, error) {
	ctx, cancel := context.WithDeadline(ctx, s.Deadline())
	defer cancel()
	sc, err := r.look(ctx, s)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	todo := d.Decide(sc, now)
	r.alive.Store(int64(len(sc.Sessions)))
	r.publish(s, d, sc, todo.Own)
	if todo.Rewrite || len(todo.Release)+len(todo.Claim) > 0 { // the next round sees the result
		return 0, r.perform(ctx, s, sc, todo)
	}
	if todo.Again.IsZero() {
		return claimNet, nil
	}
	return min(claimNet, todo.Again.Sub(now)), nil
}

// perform releases shards, claims others, and rewrites the session record if needed. Each key is
// compared. A shard key is written only once, so its mod-revision equals its create-revision.
func (r *Replica) perform(ctx context.Context, s *Session, sc *sharding.Scene, todo sharding.Steps) error {
	var released, claimed, rewritten []Write
	for _, n := range todo.Release {
		released = append(released, Remove(keys.Shard(r.Self.Service, n), sc.Shards[n].CreateRev))
	}
	for _, n := range todo.Claim {
		value := cluster.Shard{Service: r.Self.Service, Replica: r.Self.Replica}
		claimed = append(claimed, OnSession(s, keys.Shard(r.Self.Service, n), value))
	}
	if todo.Rewrite {
		rewritten = append(rewritten, ReplaceOn(s.lease, keys.Session(r.Self.Service, r.Self.Replica), r.Self, sc.Sessions[r.Self.Replica].Written))
	}
	for _, writes := range [][]Write{released, claimed, rewritten} {
		for part := range slices.Chunk(writes, r.Client.MaxOps()-1) {
			if _, err := r.Client.Commit(ctx, Txn{Fences: []Fence{s.Fence()}, Writes: part}); err != nil {
				return errs.Wrap("store.Replica", err)
			}
		}
	}
	return nil
}

// look reads the sessions and shards of the service at one revision. The error is Fenced if the
// own session is not among them.
func (r *Replica) look(ctx context.Context, s *Session) (*sharding.Scene, error) {
	sessions, shards := keys.Sessions(r.Self.Service).String(), keys.Shards(r.Self.Service).String()
	before := r.Client.line.now()
	resp, err := r.Client.etcd.Txn(ctx).Then(
		clientv3.OpGet(sessions, clientv3.WithPrefix(), clientv3.WithKeysOnly()), clientv3.OpGet(shards, clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return nil, wrap("store.look", err)
	}
	r.Client.saw(before, resp.Header)
	sc := &sharding.Scene{Sessions: map[string]sharding.Presence{}}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		sc.Sessions[strings.TrimPrefix(string(kv.Key), sessions)] = sharding.Presence{Created: kv.CreateRevision, Written: kv.ModRevision}
	}
	if sc.Sessions[r.Self.Replica].Created != s.fence.createRev {
		return nil, errs.New(errs.Fenced, "the session of %s is over", r.Self.Replica)
	}
	for _, kv := range resp.Responses[1].GetResponseRange().GetKvs() {
		n, err := strconv.Atoi(strings.TrimPrefix(string(kv.Key), shards))
		if err != nil || n < 0 || n >= fleet.ShardCount {
			continue // not a valid shard key
		}
		v, _ := Decode[cluster.Shard](raw(kv)) // the shard is held even if the record is damaged
		sc.Shards[n] = sharding.Holding{Replica: v.Replica, CreateRev: kv.CreateRevision, Mine: clientv3.LeaseID(kv.Lease) == s.lease.id}
	}
	return sc, nil
}

// publish updates the visible ownership if it changed.
func (r *Replica) publish(s *Session, d *sharding.Decider, sc *sharding.Scene, own []int) {
	next := &Ownership{done: s.Done()}
	for _, n := range own {
		next.fences[n] = Fence{key: keys.Shard(r.Self.Service, n).String(), createRev: sc.Shards[n].CreateRev, refused: r.refused}
	}
	gained, lost := next.since(r.Owned())
	if len(gained)+len(lost) == 0 {
		return
	}
	for _, n := range gained {
		r.countTakeover(d.Cause(n))
	}
	r.Log.Info("ownership changed", "service", r.Self.Service, "shards", next.Count(), "gained", len(gained), "lost", len(lost),
		"replicas", len(sc.Sessions), "epoch", next.Epoch())
	r.set(next)
}

// waker is a Handler that only signals that something changed.
type waker chan struct{}

// Reset signals a change.
func (w waker) Reset([]KeyValue, int64) { w.wake() }

// Apply signals a change.
func (w waker) Apply(changes []Change, _ int64) {
	if len(changes) > 0 {
		w.wake()
	}
}

func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}
