package model

import "fmt"

// service is one of the two services that own shards.
type service uint8

const (
	scheduling service = iota
	enforcing
)

// who identifies a replica.
type who struct {
	service service
	replica uint8
}

func (w who) String() string {
	return fmt.Sprintf("%s %d", [...]string{"scheduler", "enforcer"}[w.service], w.replica+1)
}

type shardName uint8

func (k shardName) String() string { return fmt.Sprintf("shard %d", uint8(k)+1) }

func (s *State) owners(v service) *owners {
	if v == scheduling {
		return &s.schedulers
	}
	return &s.enforcers
}

func (s *State) replica(w who) *replica {
	if w.service == scheduling {
		return &s.scheduler[w.replica]
	}
	return &s.enforcer[w.replica]
}

func (m *Model) shardsOf(v service) int {
	if v == scheduling {
		return m.cfg.Shards
	}
	return 1
}

// ownership emits the steps of a replica's session and shards.
func (x *stepper) ownership(w who) {
	if !x.m.cfg.Owners {
		return
	}
	s := x.s
	o, r := s.owners(w.service), s.replica(w)
	have := o.session[w.replica]
	if r.session == 0 && have == 0 {
		x.step(func(s *State) {
			at := s.next()
			s.owners(w.service).session[w.replica] = at
			s.replica(w).session = at
		}, say("%v opens a session", w))
	}
	if have != 0 {
		x.stepFault(r.session == have, func(s *State) {
			o := s.owners(w.service)
			o.session[w.replica] = 0
			for k := range o.shard {
				if o.shard[k].create != 0 && o.shard[k].by == w.replica {
					o.shard[k] = shard{}
				}
			}
		}, say("the session of %v expires, its shards with it", w))
	}
	if r.session != 0 && r.session != have {
		x.step(func(s *State) { s.replica(w).session, s.replica(w).holds = 0, [maxShards]rev{} }, say("%v notices that its session is over", w))
	}
	if r.session != 0 || r.looked || r.doubt != 0 {
		x.stepFault(true, func(s *State) {
			sent := s.replica(w).sent
			*s.replica(w) = replica{sent: sent}
		}, say("%v is killed and starts again with empty memory", w))
	}
	for k := range x.m.shardsOf(w.service) {
		x.claims(w, k)
	}
}

func (x *stepper) claims(w who, k int) {
	s := x.s
	o, r := s.owners(w.service), s.replica(w)
	key := o.shard[k]
	name := shardName(k)
	live := r.session != 0 && r.session == o.session[w.replica]
	if live && key.create == 0 {
		x.step(func(s *State) {
			at := s.next()
			s.owners(w.service).shard[k] = shard{at, w.replica}
			x.m.gain(s.replica(w), k, at)
		}, say("%v claims %v", w, name))
	}
	if live && key.create != 0 && key.by != w.replica && !x.m.cfg.keeps(ClaimFree) {
		x.step(func(s *State) { // an overwritten key keeps its create revision
			s.owners(w.service).shard[k].by = w.replica
			x.m.gain(s.replica(w), k, key.create)
		}, say("%v claims %v, which another holds", w, name))
	}
	if live && key.create != 0 && key.by == w.replica && r.holds[k] == key.create {
		x.stepFault(true, func(s *State) {
			s.replica(w).holds[k] = 0
			s.owners(w.service).shard[k] = shard{}
		}, say("%v hands %v over", w, name))
	}
}

// gain records a new ownership. An older view is no longer useful.
func (m *Model) gain(r *replica, k int, at rev) {
	r.holds[k] = at
	if m.cfg.keeps(ViewPastOwnership) {
		r.forgetView()
	}
}

func (r *replica) forgetView() { r.looked, r.view = false, records{} }
