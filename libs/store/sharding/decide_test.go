package sharding

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

const simPatience = 10 * time.Second

// troupe models replicas and a store. A write succeeds if its comparison holds at that moment, however
// old the snapshot behind the decision is.
type troupe struct {
	rev      int64
	now      time.Time
	sessions map[string]Presence
	shards   [fleet.ShardCount]Holding // mine is unused
	duties   map[string]*Decider
	looks    map[string]*Scene // the snapshot that each will act on
	hung     map[string]bool
	moves    int // released shards
}

func newTroupe() *troupe {
	return &troupe{
		now: time.Unix(1e9, 0), sessions: map[string]Presence{}, duties: map[string]*Decider{}, looks: map[string]*Scene{}, hung: map[string]bool{},
	}
}

func (w *troupe) join(name string) {
	w.rev++
	w.sessions[name] = Presence{w.rev, w.rev}
	w.duties[name] = &Decider{Self: name, Patience: simPatience}
	delete(w.hung, name)
}

// leave ends a session by a clean stop or an expiry: everything on its lease is deleted at once.
func (w *troupe) leave(name string) {
	w.rev++
	delete(w.sessions, name)
	delete(w.looks, name)
	delete(w.hung, name)
	for n := range w.shards {
		if w.shards[n].Replica == name {
			w.shards[n] = Holding{}
		}
	}
}

func (w *troupe) look(name string) {
	s := &Scene{Sessions: maps.Clone(w.sessions), Shards: w.shards}
	for n := range s.Shards {
		s.Shards[n].Mine = s.Shards[n].Replica == name
	}
	w.looks[name] = s
}

// act performs what follows from the replica's last snapshot and reports whether there was anything to
// do.
func (w *troupe) act(name string) bool {
	s := w.looks[name]
	delete(w.looks, name)
	if s == nil || s.Sessions[name].Created != w.sessions[name].Created {
		return false
	}
	todo := w.duties[name].Decide(s, w.now)
	w.rev++
	if !slices.ContainsFunc(todo.Release, func(n int) bool { return w.shards[n].CreateRev != s.Shards[n].CreateRev }) {
		for _, n := range todo.Release {
			w.shards[n] = Holding{}
			w.moves++
		}
	}
	w.rev++
	if !slices.ContainsFunc(todo.Claim, func(n int) bool { return w.shards[n].CreateRev != 0 }) {
		for _, n := range todo.Claim {
			w.shards[n] = Holding{Replica: name, CreateRev: w.rev}
		}
	}
	if todo.Rewrite {
		w.rev++
		w.sessions[name] = Presence{w.sessions[name].Created, w.rev}
	}
	return todo.Rewrite || len(todo.Release)+len(todo.Claim) > 0
}

// settle lets all replicas that do not hang read and act until nothing is left to do.
func (w *troupe) settle(t *rapid.T) {
	const enough = 8
	for range enough {
		busy := false
		for _, name := range slices.Sorted(maps.Keys(w.sessions)) {
			if !w.hung[name] {
				w.look(name)
				busy = w.act(name) || busy
			}
		}
		if !busy {
			return
		}
	}
	t.Fatalf("still busy after %d rounds: %v", enough, w.shards)
}

// pass advances time in multiples of the patience and lets all replicas act after each.
func (w *troupe) pass(t *rapid.T, patiences ...int) {
	for _, n := range patiences {
		w.now = w.now.Add(time.Duration(n) * simPatience)
		w.settle(t)
	}
}

func TestShardsConvergeToShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTroupe()
		name := func() string { return fmt.Sprint("r", rapid.IntRange(0, 4).Draw(t, "replica")) }
		t.Repeat(map[string]func(*rapid.T){
			"join or leave": func(*rapid.T) {
				if r := name(); w.sessions[r].Created == 0 {
					w.join(r)
				} else {
					w.leave(r)
				}
			},
			"look": func(*rapid.T) {
				if r := name(); w.sessions[r].Created != 0 && !w.hung[r] {
					w.look(r)
				}
			},
			"act": func(*rapid.T) { w.act(name()) }, // also one that hung and continues late
			"hang": func(*rapid.T) {
				if r := name(); w.sessions[r].Created != 0 {
					w.hung[r] = true
				}
			},
			"wait": func(*rapid.T) { w.now = w.now.Add(simPatience / 2) },
		})
		w.join("other") // one healthy replica
		w.settle(t)
		w.pass(t, 1) // others take over from replicas that hang
		w.pass(t, 1) // late replicas have renewed
		for n, h := range w.shards {
			if h.CreateRev == 0 {
				t.Fatalf("shard %d is free", n)
			}
		}
		before := w.shards
		w.pass(t, 1, 2, 4, 1000)
		if w.shards != before {
			t.Error("shards moved though nothing changed")
		}
		clear(w.hung)
		w.settle(t)
		w.pass(t, 1<<rewriteLimit)
		for n, owner := range Share(slices.Collect(maps.Keys(w.sessions))) {
			if h := w.shards[n]; h.Replica != owner {
				t.Errorf("shard %d is with %q, belongs to %s", n, h.Replica, owner)
			}
		}
	})
}

func TestJoinMovesOnlyItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := replicaNames(2, 6).Draw(t, "replicas")
		w := newTroupe()
		for _, r := range names[1:] {
			w.join(r)
		}
		w.settle(t)
		w.moves = 0
		w.join(names[0])
		w.settle(t)
		if want := moved(Share(names[1:]), Share(names)); w.moves != want {
			t.Errorf("%d shards were given up, want %d", w.moves, want)
		}
	})
}

func TestStandInKeepsShardsUntilOwnerReturns(t *testing.T) {
	w := newTroupe()
	w.join("a")
	act := func() { w.look("a"); w.act("a"); w.look("a"); w.act("a") }
	act()
	w.join("b") // never claims anything
	act()
	mine := func() (n int) {
		for _, h := range w.shards {
			if h.Replica == "a" {
				n++
			}
		}
		return n
	}
	if mine() != fleet.ShardCount/2 {
		t.Errorf("%d are left after b has joined", mine())
	}
	w.now = w.now.Add(simPatience - 1)
	if act(); mine() != fleet.ShardCount/2 {
		t.Errorf("%d are held before b's time is over", mine())
	}
	w.now = w.now.Add(1)
	if act(); mine() != fleet.ShardCount {
		t.Errorf("%d are held after b's time is over", mine())
	}
	w.now = w.now.Add(3 * simPatience)
	if act(); mine() != fleet.ShardCount {
		t.Errorf("%d are held after a while", mine())
	}
	wakes := func() { w.look("b"); w.act("b") }
	wakes()
	if act(); mine() != fleet.ShardCount {
		t.Errorf("%d are held, though b may just be waiting for a to give them up", mine())
	}
	w.now = w.now.Add(simPatience)
	wakes()
	if act(); mine() != fleet.ShardCount/2 {
		t.Errorf("%d are held though b has spoken up", mine())
	}
	if wakes(); w.shards[slices.Index(ownersOf("a", "b"), "b")].Replica != "b" {
		t.Error("b did not claim what it asked for")
	}
}

func ownersOf(replicas ...string) []string {
	owner := Share(replicas)
	return owner[:]
}

func TestTakeoverCauseDependsOnLastHolder(t *testing.T) {
	s := &Scene{Sessions: map[string]Presence{"a": {Created: 1, Written: 3}, "b": {Created: 2, Written: 2}}}
	owner := Share([]string{"a", "b"})
	for _, c := range []struct {
		name, self, last string
		want             Takeover
	}{
		{"nobody, and nobody is older", "a", "", TakeoverFree},
		{"nobody was seen to, but somebody is older", "b", "", TakeoverHanded},
		{"ourselves, until somebody removed the key", "a", "a", TakeoverFree},
		{"one that lives", "a", "b", TakeoverHanded},
		{"one that is gone", "b", "c", TakeoverEnded},
	} {
		n := slices.Index(owner[:], c.self)
		d := &Decider{Self: c.self, Patience: simPatience}
		d.last[n] = c.last
		d.Decide(s, time.Unix(0, 0))
		if d.Cause(n) != c.want {
			t.Errorf("%s: %s, want %s", c.name, d.Cause(n), c.want)
		}
	}
}
