package model

import "fmt"

type nodeName uint8

func (n nodeName) String() string { return "node " + string(rune('A'+n)) }

type instanceName uint8

func (i instanceName) String() string { return fmt.Sprintf("instance %d", uint8(i)+1) }

// work emits the steps by which a replica looks, decides and commits.
func (x *stepper) work(w who) {
	r := x.s.replica(w)
	if r.sent.kind != nothing {
		x.arrives(w)
	}
	if r.doubt != 0 {
		x.settles(w)
		return
	}
	if !r.looked || r.view != x.s.keys.seen(w.service) {
		x.looks(w)
	}
	if !r.looked {
		return
	}
	x.m.decide(x.s, w, false, func(t txn) {
		if x.m.holds(x.s, &t) {
			x.commits(w, t)
		}
		if x.m.cfg.LostAnswers && r.sent.kind == nothing && !x.m.dead(x.s, &t) {
			x.loses(w, t)
		}
	})
}

// looks updates the view if that has any consequence.
func (x *stepper) looks(w who) {
	to := *x.s
	r := to.replica(w)
	r.looked, r.view = true, to.keys.seen(w.service)
	if x.m.forgetsViews() && !x.m.useful(&to, w) {
		return
	}
	x.emit(Step[State]{To: to, Says: say("%v looks at the records", w)})
}

// seen returns the records without those that a service does not read.
func (k records) seen(v service) records {
	if v == scheduling {
		k.joined = [maxNodes]join{}
	} else {
		k.alloc = [maxNodes]rev{}
	}
	return k
}

func (x *stepper) commits(w who, t txn) {
	to := *x.s
	broken := x.m.apply(&to, &t)
	if x.m.cfg.keeps(ViewPastCommit) {
		to.replica(w).forgetView()
	}
	x.emit(Step[State]{To: to, Says: t.says(w, "%v %v"), Broken: broken})
}

// loses sends a transaction whose answer does not arrive in time.
func (x *stepper) loses(w who, t txn) {
	to := *x.s
	r := to.replica(w)
	r.sent = t
	if t.kind == place && x.m.cfg.keeps(Settle) {
		r.doubt = t.node + 1
		r.forgetView()
	}
	x.emit(Step[State]{To: to, Says: t.says(w, "%v sends, and gets no answer: it %v"), Fault: true})
}

// arrives lets a transaction with a lost answer reach etcd after all, or get lost.
func (x *stepper) arrives(w who) {
	t := x.s.replica(w).sent
	if x.m.holds(x.s, &t) {
		to := *x.s
		to.replica(w).sent = txn{}
		broken := x.m.apply(&to, &t)
		x.emit(Step[State]{To: to, Says: t.says(w, "what %v sent arrives late: it %v"), Broken: broken})
	}
	x.step(func(s *State) { s.replica(w).sent = txn{} }, say("what %v sent is lost for good", w))
}

// settles touches an alloc key that the transaction in doubt compares, under a shard that
// the replica owns now.
func (x *stepper) settles(w who) {
	r := x.s.replica(w)
	n := r.doubt - 1
	owns := !x.m.cfg.Owners
	for k, held := range r.holds {
		owns = owns || held != 0 && (held == x.s.schedulers.shard[k].create || !x.m.cfg.keeps(Fence))
	}
	if !owns {
		return
	}
	x.step(func(s *State) {
		r := s.replica(w)
		r.doubt = 0
		r.forgetView()
		s.keys.alloc[n] = s.next()
	}, say("%v touches the alloc key of %v, to settle what it sent", w, nodeName(n)))
}

// says describes a transaction.
func (t *txn) says(w who, form string) Sentence {
	return Sentence{form: form, args: [3]fmt.Stringer{w, deed(*t)}}
}

// deed formats a transaction.
type deed txn

func (d deed) String() string {
	i, n := instanceName(d.instance), nodeName(d.node)
	switch d.kind {
	case place:
		if d.from != 0 && d.from != d.node+1 {
			return fmt.Sprintf("places %v of %v on %v and takes it from %v", d.gen, i, n, nodeName(d.from-1))
		}
		return fmt.Sprintf("places %v of %v on %v", d.gen, i, n)
	case lose:
		return fmt.Sprintf("writes OFFLINE for %v of %v on %v", d.gen, i, n)
	case again:
		return fmt.Sprintf("asks for %v of %v", d.gen, i)
	case nothing:
	}
	return "does nothing"
}

// forgetsViews reports whether views without a possible effect are dropped. An old view
// could still be useful to a later owner that may plan from it.
func (m *Model) forgetsViews() bool { return !m.cfg.Plain && m.cfg.keeps(ViewPastOwnership) }

// useful reports whether any decision from a replica's view may still succeed.
func (m *Model) useful(s *State, w who) bool {
	useful := false
	m.decide(s, w, true, func(t txn) { useful = useful || !m.dead(s, &t) })
	return useful
}

// decide visits the transactions that a replica may make from its view. With later, it
// includes those that become possible with time.
func (m *Model) decide(s *State, w who, later bool, visit func(txn)) {
	r := s.replica(w)
	for i := range m.cfg.Instances {
		k := 0
		if w.service == scheduling {
			k = i % m.cfg.Shards
		}
		fence := r.holds[k]
		if m.cfg.Owners && fence == 0 {
			continue
		}
		t := txn{instance: uint8(i), shard: uint8(k), fence: fence}
		aged := later || m.aged(s, &r.view, i)
		if w.service == scheduling {
			m.placements(&r.view, t, visit)
		} else {
			m.enforcements(&r.view, t, aged, visit)
		}
	}
}

// placements visits the ways to place an instance: on any live node with room. An instance
// leaves a lost node only while the OFFLINE exists for which that was requested.
func (m *Model) placements(v *records, t txn, visit func(txn)) {
	i := int(t.instance)
	in, st := v.intent[i], v.status[i]
	if in.mod == 0 || in.stopped || st.gen >= in.gen {
		return
	}
	t.kind, t.gen, t.intent = place, in.gen, in.mod
	if n, ok := v.placed(i); ok {
		p := v.placement[n][i]
		if p.gen >= in.gen {
			return
		}
		t.from, t.old = uint8(n)+1, p.mod
		if v.holdsNode(n, i) {
			if st.is != offline || st.gen != p.gen || st.mod != in.leaves && m.cfg.keeps(MoveAsked) {
				return
			}
			t.missing, t.status, t.joined = t.from, st.mod, in.left
		}
	}
	for n := range m.cfg.Nodes {
		if v.session[n] == 0 || v.used(n, i) > 0 {
			continue
		}
		t.node, t.here, t.alloc = uint8(n), v.placement[n][i].mod, v.alloc[n]
		visit(t)
	}
}

// enforcements visits OFFLINE statuses for instances on a lost node, and next generations
// for instances that ended or are lost for good.
func (m *Model) enforcements(v *records, t txn, aged bool, visit func(txn)) {
	i := int(t.instance)
	in, st := v.intent[i], v.status[i]
	if n, ok := v.placed(i); ok && v.session[n] == 0 {
		p := v.placement[n][i]
		if st.gen < p.gen || st.is != ended && st.is != offline {
			t := t
			t.kind, t.gen, t.node, t.status, t.missing = lose, p.gen, uint8(n), st.mod, uint8(n)+1
			visit(t)
		}
	}
	if in.stopped {
		return
	}
	if st.is == ended && st.gen == in.gen {
		t.kind, t.gen, t.intent, t.status = again, in.gen+1, in.mod, st.mod
		visit(t)
	}
	n, ok := v.placed(i)
	if !ok || v.session[n] != 0 || st.is != offline || m.cfg.Ordinary || !aged && m.cfg.keeps(AgainMargin) {
		return
	}
	// A generation that was requested because of an earlier loss must be requested again.
	if st.gen == in.gen || in.leaves != st.mod || in.left != v.joined[n] {
		t.kind, t.gen, t.intent, t.status = again, in.gen+1, in.mod, st.mod
		t.node, t.leaves, t.joined = uint8(n), st.mod, v.joined[n]
		visit(t)
	}
}

// aged reports whether the wait after the loss of an instance's node may be over in a view.
// If the node has joined meanwhile, the wait may always be over.
func (m *Model) aged(s *State, v *records, i int) bool {
	n, ok := v.placed(i)
	return ok && (s.over[n] || s.keys.joined[n] != v.joined[n])
}
