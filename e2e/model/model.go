package model

// Model is the protocol for one configuration. It implements Machine.
type Model struct{ cfg Config }

// New returns the model of a configuration.
func New(cfg Config) *Model { return &Model{cfg} }

// Start returns an empty fleet with an intent for each instance.
func (m *Model) Start() State {
	var s State
	for i := range m.cfg.Instances {
		s.keys.intent[i] = intent{mod: s.next(), gen: 1}
	}
	for n := range m.cfg.Nodes {
		s.host[n].spent, s.over[n] = true, true // there has been no session
		if m.steady(n) {
			s.keys.session[n] = s.next()
			s.keys.joined[n], s.host[n].session = s.nextJoin(), s.keys.session[n]
			s.host[n].spent, s.over[n] = false, false
		}
	}
	return s
}

// steady reports whether a node's session lasts forever.
func (m *Model) steady(n int) bool { return !m.cfg.Agents || m.cfg.Spare && n == 1 }

// stepper emits the possible steps from a state.
type stepper struct {
	m    *Model
	s    *State
	emit func(Step[State])
}

func (x *stepper) step(change func(*State), says Sentence) { x.stepFault(false, change, says) }

func (x *stepper) stepFault(fault bool, change func(*State), says Sentence) {
	to := *x.s
	change(&to)
	x.emit(Step[State]{To: to, Says: says, Fault: fault})
}

// Next emits all possible steps.
func (m *Model) Next(s State, emit func(Step[State])) {
	x := &stepper{m, &s, emit}
	for r := range m.cfg.Schedulers {
		w := who{scheduling, uint8(r)}
		x.ownership(w)
		x.work(w)
	}
	for r := range m.cfg.Enforcers {
		w := who{enforcing, uint8(r)}
		x.ownership(w)
		x.work(w)
	}
	for i := range m.cfg.Instances {
		x.surroundings(i)
	}
	if m.cfg.Agents {
		for n := range m.cfg.Nodes {
			x.node(n)
		}
	}
}

// surroundings emits the steps of components outside the model.
func (x *stepper) surroundings(i int) {
	in, st := x.s.keys.intent[i], x.s.keys.status[i]
	name := instanceName(i)
	if x.m.cfg.Stops && !in.stopped {
		x.stepFault(true, func(s *State) {
			s.keys.intent[i].mod, s.keys.intent[i].stopped = s.next(), true
		}, say("a user stops %v", name))
	}
	if x.m.cfg.Agents {
		return
	}
	if n, ok := x.s.keys.placed(i); ok && x.s.keys.holdsNode(n, i) {
		g := x.s.keys.placement[n][i].gen
		x.stepFault(true, func(s *State) {
			s.keys.status[i] = status{mod: s.next(), gen: g, is: ended}
		}, say("the agent of %v reports that %v of %v ended", nodeName(n), g, name))
	}
	if x.m.cfg.Enforcers == 0 && !in.stopped && st.gen == in.gen && st.is == ended {
		x.step(func(s *State) {
			s.keys.intent[i].mod, s.keys.intent[i].gen = s.next(), in.gen+1
		}, say("the enforcer asks for another generation of %v", name))
	}
}

// Rename renumbers revisions and generations.
func (m *Model) Rename(s State) State {
	s.renumber()
	return s
}

// Forget drops memories without a possible effect: transactions that can never succeed,
// views that lead only to such transactions, and sessions that are over.
func (m *Model) Forget(s State) State {
	if !m.cfg.Plain {
		m.forget(&s)
	}
	return s
}

func (m *Model) forget(s *State) {
	for r := range m.cfg.Schedulers {
		m.forgetReplica(s, who{scheduling, uint8(r)})
	}
	for r := range m.cfg.Enforcers {
		m.forgetReplica(s, who{enforcing, uint8(r)})
	}
	for n := range m.cfg.Nodes {
		m.forgetHost(s, n)
	}
}

func (m *Model) forgetReplica(s *State, w who) {
	r, o := s.replica(w), s.owners(w.service)
	if m.cfg.Owners && m.cfg.keeps(Fence) {
		if r.session != o.session[w.replica] {
			r.session, r.holds = 0, [maxShards]rev{}
		}
		for k := range r.holds {
			if r.holds[k] != o.shard[k].create {
				r.holds[k] = 0
			}
		}
	}
	if r.sent.kind != nothing && m.dead(s, &r.sent) {
		r.sent = txn{}
	}
	if r.looked && m.forgetsViews() && !m.useful(s, w) {
		r.forgetView()
	}
}
