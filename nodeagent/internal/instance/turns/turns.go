// Package turns bounds how many instances of a node start at the same time. After a reboot of the host,
// all its instances would otherwise start at once, and each would be slow.
//
// An instance has its turn from before its directory is built until it is ONLINE or has ended. Those that
// wait get their turn in order of rank, and of equal rank in order of arrival.
package turns

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// MaxTurn is how long one turn may take. After that the next instance starts too.
const MaxTurn = 5 * time.Minute

// Config configures Turns.
type Config struct {
	// Limit is the number of instances that have a turn at the same time. 0 means no limit.
	Limit int
	// Settle delays the first turns, so that instances that arrive meanwhile are compared by rank.
	Settle time.Duration
	// For is how long the limit holds. 0 means always.
	For time.Duration
}

// Rank orders the instances that wait: those of higher Priority first, then those of higher StartupWeight.
type Rank struct{ Priority, StartupWeight int }

// Turns are the turns of one node. It is safe for concurrent use.
type Turns struct {
	mu    sync.Mutex
	limit int
	// open is false until the first instances have settled.
	open     bool
	settle   time.Duration
	settling bool
	// waiting is in the order in which they get a turn.
	waiting []*waiter
	holding map[fleet.InstanceID]*turn
}

// turn is the turn of one instance.
type turn struct{ over *time.Timer }

// waiter is an instance that waits. granted is closed when it has a turn.
type waiter struct {
	id      fleet.InstanceID
	rank    Rank
	granted chan struct{}
}

// New returns Turns.
func New(cfg Config) *Turns {
	t := &Turns{limit: cfg.Limit, open: cfg.Settle <= 0, settle: cfg.Settle, holding: map[fleet.InstanceID]*turn{}}
	if cfg.Limit > 0 && cfg.For > 0 {
		time.AfterFunc(cfg.For, t.lift)
	}
	return t
}

// Take returns when an instance has a turn, or with ctx's error. An instance that has one keeps it. waits
// is called with the limit if the instance has to wait.
func (t *Turns) Take(ctx context.Context, id fleet.InstanceID, r Rank, waits func(limit int)) error {
	w, limit := t.enqueue(id, r)
	if w == nil {
		return nil
	}
	waits(limit)
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		t.leave(w)
		return ctx.Err()
	}
}

// enqueue returns nil if the instance has a turn now.
func (t *Turns) enqueue(id fleet.InstanceID, r Rank) (*waiter, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit == 0 || t.holding[id] != nil {
		return nil, 0
	}
	if !t.open && !t.settling {
		t.settling = true
		time.AfterFunc(t.settle, t.settled)
	}
	w := &waiter{id: id, rank: r, granted: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(t.waiting, w, func(other, w *waiter) int {
		if before(w.rank, other.rank) {
			return 1
		}
		return -1 // after those of equal rank
	})
	t.waiting = slices.Insert(t.waiting, at, w)
	t.grant()
	if t.holding[id] != nil {
		return nil, 0
	}
	return w, t.limit
}

func before(a, b Rank) bool {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.StartupWeight, b.StartupWeight)) > 0
}

// grant gives turns to those that wait. The caller holds mu.
func (t *Turns) grant() {
	for t.open && len(t.waiting) > 0 && (t.limit == 0 || len(t.holding) < t.limit) {
		w := t.waiting[0]
		t.waiting = t.waiting[1:]
		if t.limit > 0 {
			held := &turn{}
			held.over = time.AfterFunc(MaxTurn, func() { t.end(w.id, held) })
			t.holding[w.id] = held
		}
		close(w.granted)
	}
}

// leave removes an instance that no longer waits. It gives back a turn that it got meanwhile.
func (t *Turns) leave(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.waiting, w); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
		return
	}
	t.give(w.id)
}

// Give ends the turn of an instance. It does nothing for an instance without one.
func (t *Turns) Give(id fleet.InstanceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.give(id)
}

func (t *Turns) give(id fleet.InstanceID) {
	held := t.holding[id]
	if held == nil {
		return
	}
	held.over.Stop()
	delete(t.holding, id)
	t.grant()
}

// end ends a turn that took too long, if it is still the instance's.
func (t *Turns) end(id fleet.InstanceID, held *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holding[id] == held {
		t.give(id)
	}
}

func (t *Turns) settled() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = true
	t.grant()
}

// lift ends the limit.
func (t *Turns) lift() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit, t.open = 0, true
	t.grant()
}
