package model

import "cmp"

// kind is the effect of a transaction.
type kind uint8

const (
	nothing kind = iota
	place        // place an instance on a node, taking it from another node if necessary
	lose         // write OFFLINE
	again        // request the next generation
)

// txn is a transaction of a scheduler or enforcer with all its comparisons. Comparisons
// that the configuration leaves out are ignored.
type txn struct {
	kind     kind
	instance uint8
	node     uint8
	gen      gen
	shard    uint8
	fence    rev

	intent rev   // mod revision, for place and again
	status rev   // mod revision, for lose, again, and place off a lost node
	here   rev   // mod revision of the placement on node, for place
	from   uint8 // 1 + the node that the instance leaves; 0 for none
	old    rev   // mod revision of the placement there
	alloc  rev   // mod revision, for place
	leaves rev   // the OFFLINE that causes again
	joined join  // the lost node's latest join, for again and place off a lost node
	// missing is 1 + the node that must have no session; 0 for none.
	missing uint8
}

// comparison is a current revision and the one that a transaction requires.
type comparison struct{ found, want rev }

// compared visits the comparisons of a transaction against the current keys.
func (m *Model) compared(s *State, t *txn, visit func(comparison)) {
	on := func(g Safeguard, found, want rev) {
		if m.cfg.keeps(g) {
			visit(comparison{found, want})
		}
	}
	k, i := &s.keys, t.instance
	switch t.kind {
	case nothing:
	case place:
		on(Fence, s.schedulers.shard[t.shard].create, t.fence)
		on(IntentUnchanged, k.intent[i].mod, t.intent)
		on(PlacementUnchanged, k.placement[t.node][i].mod, t.here)
		on(AllocUnchanged, k.alloc[t.node], t.alloc)
		if t.from != 0 {
			on(PlacementUnchanged, k.placement[t.from-1][i].mod, t.old)
		}
		if t.missing != 0 {
			on(MoveUnchanged, k.status[i].mod, t.status)
			on(MoveMissing, k.session[t.missing-1], 0)
			on(MoveRejoin, rev(k.joined[t.missing-1]), rev(t.joined))
		}
	case lose:
		on(Fence, s.enforcers.shard[0].create, t.fence)
		on(OfflineUnchanged, k.status[i].mod, t.status)
		on(OfflineMissing, k.session[t.missing-1], 0)
	case again:
		on(Fence, s.enforcers.shard[0].create, t.fence)
		visit(comparison{k.intent[i].mod, t.intent})
		on(AgainUnchanged, k.status[i].mod, t.status)
		if t.joined != 0 {
			on(AgainRejoin, rev(k.joined[t.node]), rev(t.joined))
		}
	}
}

// holds reports whether all comparisons hold now.
func (m *Model) holds(s *State, t *txn) bool {
	ok := true
	m.compared(s, t, func(c comparison) { ok = ok && c.found == c.want })
	return ok
}

// dead reports whether a transaction can never succeed again: a revision never returns, but
// the absence of a key may.
func (m *Model) dead(s *State, t *txn) bool {
	dead := t.kind == nothing
	m.compared(s, t, func(c comparison) { dead = dead || c.want != 0 && c.found != c.want })
	return dead
}

// apply performs a transaction whose comparisons hold and names the rule that it breaks, if
// any.
func (m *Model) apply(s *State, t *txn) (broken string) {
	at := s.next()
	k, i := &s.keys, t.instance
	if m.cfg.Owners && !m.cfg.HarmOnly && t.fence != m.ownersOf(s, t).shard[t.shard].create {
		broken = OnlyOwnersWrite
	}
	switch t.kind {
	case nothing:
	case place:
		if in := k.intent[i]; in.stopped || in.gen != t.gen {
			broken = NothingStoppedIsPlaced
		}
		if t.from != 0 {
			k.placement[t.from-1][i] = placement{}
		}
		k.placement[t.node][i] = placement{at, t.gen}
		k.alloc[t.node] = at
	case lose:
		if k.session[t.node] != 0 && !m.cfg.HarmOnly {
			broken = OfflineMeansLost
		}
		broken = cmp.Or(broken, badStatus(k.status[i], t.gen, offline))
		k.status[i] = status{mod: at, gen: t.gen, is: offline}
	case again:
		k.intent[i].mod = at
		k.intent[i].gen, k.intent[i].leaves, k.intent[i].left = t.gen, t.leaves, t.joined
	}
	return broken
}

func (m *Model) ownersOf(s *State, t *txn) *owners {
	if t.kind == place {
		return &s.schedulers
	}
	return &s.enforcers
}
