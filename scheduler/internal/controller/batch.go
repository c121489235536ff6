package controller

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// noteEvery is the shortest time between two notes about one instance that differ only in counts.
const noteEvery = time.Second

// batch is one transaction in the making.
type batch struct {
	s      *state
	now    time.Time
	maxOps int

	txn    store.Txn
	fences map[string]bool
	allocs map[fleet.NodeID]bool
	// holds are what the model was charged with for this batch.
	holds []place.Hold
	// placed and noted are the instances it decides about.
	placed, noted []fleet.InstanceID
	// later is when a note that came too soon is due; zero when none is.
	later time.Time
}

func newBatch(s *state, now time.Time, maxOps int) *batch {
	return &batch{s: s, now: now, maxOps: maxOps, fences: map[string]bool{}, allocs: map[fleet.NodeID]bool{}}
}

// entrySize is the most comparisons one instance can add: its fence, its intent,
// two placement keys, its note, its node's alloc key, and for one that leaves a lost
// node that node's session and its own status.
const entrySize = 8

func (b *batch) full() bool {
	return b.txn.Size()+entrySize > b.maxOps || b.txn.Bytes() >= store.FullBytes
}

func (b *batch) fence(f store.Fence) {
	if !b.fences[f.Key()] {
		b.fences[f.Key()] = true
		b.txn.Fences = append(b.txn.Fences, f)
	}
}

// place adds a placement.
func (b *batch) place(i *fleet.Instance, plan *fleet.Plan, c place.Choice, f store.Fence) {
	in := &i.Intent
	b.fence(f)
	b.txn.Guards = append(b.txn.Guards, store.Unchanged(store.IntentKey(in.ID), in.ModRev))
	if i.Moving() { // an old copy that is back after all bars the move
		b.txn.Guards = append(b.txn.Guards, store.Missing(store.NodeSessionKey(i.Placement.Node)),
			store.Unchanged(store.StatusKey(in.ID), i.Status.ModRev))
	}
	p := fleet.Placement{
		Instance: in.ID, Name: in.Name, Group: in.Group, Node: c.Node, Generation: in.Generation, Plan: in.Plan,
		Resources: plan.Resources, Port: c.Port, Ports: c.Ports, Values: in.Values,
		Epoch: f.Epoch(), PlacedAt: b.now.UTC(), Score: c.Score.Parts(),
	}
	var rev int64
	if old := i.Placement; old != nil {
		if old.Node == c.Node {
			rev = old.ModRev
		} else {
			b.txn.Writes = append(b.txn.Writes, store.Remove(store.PlacementKey(old.Node, in.ID), old.ModRev))
		}
	}
	b.txn.Writes = append(b.txn.Writes, store.Replace(store.PlacementKey(c.Node, in.ID), p, rev))
	if i.Pending != nil {
		b.txn.Writes = append(b.txn.Writes, store.Remove(store.PendingKey(in.ID), i.Pending.ModRev))
	}
	b.touch(c.Node)
	b.holds = append(b.holds, c.Hold)
	b.placed = append(b.placed, in.ID)
}

// touch compares and renews a node's alloc key, once per transaction.
func (b *batch) touch(n fleet.NodeID) {
	if b.allocs[n] {
		return
	}
	b.allocs[n] = true
	var rev int64
	if a, ok := b.s.snap.Allocs.Get(n); ok {
		rev = a.ModRev
	}
	b.txn.Writes = append(b.txn.Writes, store.Replace(store.AllocKey(n), fleet.Alloc{Node: n}, rev))
}

// note says why an instance waits, unless that is what its note says already.
// postponed is true when it comes too soon after the last one; see later.
func (b *batch) note(i *fleet.Instance, u *place.Unfit, f store.Fence) (postponed bool) {
	in := &i.Intent
	var rev int64
	if have := i.Pending; have != nil {
		rev = have.ModRev
		if have.Generation == in.Generation && have.Reason == u.Reason {
			if have.Message == u.Message {
				return false
			}
			if due := have.At.Add(noteEvery); due.After(b.now) {
				if b.later.IsZero() || due.Before(b.later) {
					b.later = due
				}
				return true
			}
		}
	}
	b.fence(f)
	b.txn.Guards = append(b.txn.Guards, store.Unchanged(store.IntentKey(in.ID), in.ModRev))
	b.txn.Writes = append(b.txn.Writes, store.Replace(store.PendingKey(in.ID), fleet.Pending{
		Instance: in.ID, Generation: in.Generation, Reason: u.Reason, Message: u.Message,
		Lost: u.Lost, Nodes: u.Nodes, At: b.now.UTC(),
	}, rev))
	b.noted = append(b.noted, in.ID)
	return false
}

// undo gives back what the model was charged with: the view will charge it anew
// if the transaction happened.
func (b *batch) undo() {
	for _, h := range b.holds {
		b.s.model.Release(h)
	}
}
