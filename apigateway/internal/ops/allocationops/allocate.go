// Package allocationops claims ready instances, or slots of them, for clients such as matchmakers.
//
// All claims on an instance are one record, which each claim and each release compares. A claim also
// compares the instance's intent, and the enforcer compares the claims when it stops an instance for
// lack of use. So no instance has more claims than room, and none is stopped while a claim is
// committed.
//
// Claims that arrive while one is being committed share the next transaction.
package allocationops

import (
	"context"
	"crypto/rand"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// attempts limits how often a batch is decided again after it lost a race.
	attempts = 16
	// racePause is how long a batch waits after its first lost race. It grows with each.
	racePause = 2 * time.Millisecond
	// maxWaiting bounds the claims that wait for their turn.
	maxWaiting = 10_000
)

// Allocations claims and releases instances. It is safe for concurrent use.
type Allocations struct {
	*txn.Committer
	// turn has one token. Its holder commits the waiting claims.
	turn chan struct{}

	mu      sync.Mutex
	waiting []*call

	expiry
}

// New returns the operations on allocations. Start ExpireAllocations and subscribe OnClaims to the view.
func New(c *txn.Committer) *Allocations {
	return &Allocations{Committer: c, turn: make(chan struct{}, 1), expiry: newExpiry()}
}

// Allocation is a claim with its instance.
type Allocation struct {
	allocation.Claim
	Instance *fleet.Instance
	// Revision is the revision of the record with all claims on the instance.
	Revision int64
}

// call is a claim that waits for its turn.
type call struct {
	request *Request
	by      string
	done    chan struct{}
	// out and err are set when done is closed.
	out Allocation
	err error
	// tried is set once the claim was refused on a snapshot that may be old.
	tried bool
	// full is set if it was refused for good because no instance has room.
	full bool
}

// Allocate claims an instance, or slots of one. With dryRun it only returns the instance that it would
// choose. Invalid names every wrong field. Conflict when no instance has room, as of a revision that
// etcd had during the call. Exhausted when too many claims wait.
func (o *Allocations) Allocate(ctx context.Context, by txn.Actor, r Request, dryRun bool) (out Allocation, err error) {
	if err := txn.JoinProblems(r.validate()); err != nil {
		return out, err
	}
	if dryRun {
		s, err := o.Current(ctx)
		if err != nil {
			return out, err
		}
		out.Instance, err = newBook(s).choose(&r)
		return out, err
	}
	c := &call{request: &r, by: by.User, done: make(chan struct{})}
	o.mu.Lock()
	full := len(o.waiting) >= maxWaiting
	if !full {
		o.waiting = append(o.waiting, c)
	}
	o.mu.Unlock()
	if full {
		return out, errs.New(errs.Exhausted, "%d claims wait, the most there may be: retry in a moment", maxWaiting)
	}
	select {
	case <-c.done:
	case o.turn <- struct{}{}:
		// Others depend on this batch, so it does not end with this caller's request.
		err := txn.InTime(context.WithoutCancel(ctx), o.serve)
		<-o.turn
		if err != nil {
			return out, err
		}
	}
	<-c.done
	if c.full && errs.Is(c.err, errs.Conflict) {
		return c.out, o.wakeOne(ctx, by, &r, c.err)
	}
	return c.out, c.err
}

// serve decides and commits the waiting claims, as far as one transaction holds them. It serves the others
// too, unless ctx ends.
func (o *Allocations) serve(ctx context.Context) error {
	for {
		o.mu.Lock()
		batch := o.waiting
		o.waiting = nil
		o.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		rest := o.commit(ctx, batch)
		o.mu.Lock()
		o.waiting = append(rest, o.waiting...)
		more := len(rest) > 0
		o.mu.Unlock()
		if !more {
			return nil
		}
	}
}

// commit ends the calls of a batch and returns those that did not fit into its transaction.
func (o *Allocations) commit(ctx context.Context, batch []*call) (rest []*call) {
	var lost error
	for n := range attempts {
		snap := o.Snapshot()
		if slices.ContainsFunc(batch, func(c *call) bool { return c.tried }) {
			var err error
			if snap, err = o.Current(ctx); err != nil {
				end(batch, err)
				return rest
			}
		}
		chosen, again, left := o.decide(snap, batch)
		batch, rest = slices.Concat(chosen.calls, again), append(rest, left...)
		switch {
		case len(batch) == 0:
			return rest
		case len(chosen.calls) == 0:
			continue
		}
		rev, err := o.Store.Commit(ctx, chosen.txn)
		switch {
		case err == nil:
			if _, err = o.View.WaitRev(ctx, rev); err == nil {
				for _, c := range chosen.calls {
					c.out.Revision = rev
				}
			}
			end(chosen.calls, err)
			return append(rest, again...)
		case !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists):
			end(batch, errs.Wrap("allocations.commit", err))
			return rest
		}
		lost = err
		if _, err := o.View.WaitRev(ctx, rev); err != nil || !pause.For(ctx, time.Duration(n)*racePause) {
			break
		}
	}
	end(batch, &errs.Error{Op: "allocations.commit", Kind: errs.Conflict, Message: "nothing was claimed: too many changes of the same instances at once; retry", Err: lost})
	return rest
}

// decision is what one transaction claims.
type decision struct {
	txn   store.Txn
	calls []*call
}

// decide chooses instances for the calls of a batch. It ends those that are refused for good. again has
// those that were refused on a snapshot that may be old, left those that do not fit into the
// transaction.
func (o *Allocations) decide(s *view.Snapshot, batch []*call) (d decision, again, left []*call) {
	b := newBook(s)
	limit := (o.Store.MaxOps() - 1) / 2 // two comparisons for each instance
	for n, c := range batch {
		if len(b.added) >= limit || b.bytes() > store.FullBytes {
			left = append(left, batch[n:]...)
			break
		}
		i, err := b.choose(c.request)
		switch {
		case err != nil && c.tried:
			c.err, c.full = err, true
			close(c.done)
		case err != nil:
			c.tried = true
			again = append(again, c)
		default:
			c.out = Allocation{Claim: o.claim(c, i), Instance: i}
			b.add(i, c.out.Claim)
			d.calls = append(d.calls, c)
		}
	}
	for id, claims := range b.added {
		i, _ := s.Instances.Get(id)
		d.txn.Guards = append(d.txn.Guards, store.Unchanged(keys.Intent(id), i.Intent.ModRev))
		d.txn.Writes = append(d.txn.Writes, store.Replace(keys.Claims(id), *claims, claims.ModRev))
	}
	return d, again, left
}

// bytes returns an upper bound for the size of the changed records.
func (b *book) bytes() (n int) {
	for _, c := range b.added {
		n += c.Bytes()
	}
	return n
}

// add adds a claim.
func (b *book) add(i *fleet.Instance, c allocation.Claim) {
	id := i.Intent.ID
	next := allocation.Claims{Instance: id, Generation: i.Intent.Generation}
	if have := b.claimsOf(id); have != nil {
		next.Rev = have.Rev
		next.Claims = slices.Clone(have.Of(i))
	}
	next.Claims = append(next.Claims, c)
	b.added[id] = &next
	b.fill(b.rooms[id])
}

func (o *Allocations) claim(c *call, i *fleet.Instance) allocation.Claim {
	r := c.request
	return allocation.Claim{ID: allocation.NewID(i.Intent.ID, random()), Slots: r.Slots, By: c.by, At: o.Now(), TTLSeconds: r.TTLSeconds, Note: r.Note}
}

// random returns 10 random digits of base 36.
func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	text := "0000000000" + new(big.Int).SetBytes(b[:]).Text(36)
	return text[len(text)-10:]
}

// end answers calls with an error, or with what was decided if it is nil.
func end(calls []*call, err error) {
	for _, c := range calls {
		c.err = err
		close(c.done)
	}
}

// Find returns an allocation. NotFound when it does not exist or has ended.
func Find(s *view.Snapshot, id string) (out Allocation, err error) {
	if instance, ok := allocation.InstanceOf(id); ok {
		if i, ok := s.Instances.Get(instance); ok {
			claims, _ := s.Claims.Get(instance)
			for _, c := range claims.Of(i) {
				if c.ID == id {
					return Allocation{Claim: c, Instance: i, Revision: claims.ModRev}, nil
				}
			}
		}
	}
	return out, errs.New(errs.NotFound, "there is no allocation %s: it was released, or it has expired, or its instance has ended", txn.Clip(id))
}

// ReleaseAllocation ends an allocation. NotFound when it does not exist or has ended.
func (o *Allocations) ReleaseAllocation(ctx context.Context, by txn.Actor, id string, dryRun bool) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		a, err := Find(s, id)
		if err != nil || dryRun {
			return txn.Change{}, err
		}
		return txn.Change{Writes: []store.Write{without(s, a)}}, nil
	})
	return err
}

// without returns the removal of one claim.
func without(s *view.Snapshot, a Allocation) store.Write {
	have, _ := s.Claims.Get(a.Instance.Intent.ID)
	next := *have
	next.Claims = slices.DeleteFunc(slices.Clone(have.Claims), func(c allocation.Claim) bool { return c.ID == a.ID })
	if len(next.Claims) == 0 {
		return store.Remove(keys.Claims(next.Instance), have.ModRev)
	}
	return store.Replace(keys.Claims(next.Instance), next, have.ModRev)
}

// RenewAllocation lets an allocation end ttlSeconds from now; 0 means when it is released or the run ends. NotFound
// when it does not exist or has ended, Invalid for a wrong time.
func (o *Allocations) RenewAllocation(ctx context.Context, by txn.Actor, id string, ttlSeconds int) (out Allocation, err error) {
	if ttlSeconds < 0 || ttlSeconds > allocation.MaxTTLSeconds {
		return out, errs.Field("ttlSeconds", "must be between 0 (until it is released) and %d, is %d", allocation.MaxTTLSeconds, ttlSeconds)
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		a, err := Find(s, id)
		if err != nil {
			return txn.Change{}, err
		}
		have, _ := s.Claims.Get(a.Instance.Intent.ID)
		next := *have
		next.Claims = slices.Clone(have.Claims)
		for n := range next.Claims {
			if c := &next.Claims[n]; c.ID == id {
				c.At, c.TTLSeconds = o.Now(), ttlSeconds
			}
		}
		return txn.Change{Writes: []store.Write{store.Replace(keys.Claims(next.Instance), next, have.ModRev)}}, nil
	})
	if err != nil {
		return out, err
	}
	return Find(o.Snapshot(), id)
}
