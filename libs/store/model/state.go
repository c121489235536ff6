package model

import "fmt"

// The largest fleet there is room for in a State. Config says how much of it is used.
const (
	maxReplicas  = 2
	maxShards    = 2
	maxNodes     = 2
	maxInstances = 2
)

// rev is a revision of etcd; 0 stands for a key that does not exist.
type rev uint8

// gen is a generation of an instance; 0 is none.
type gen uint8

func (g gen) String() string { return fmt.Sprintf("generation %d", uint8(g)) }

// state is what a status record says.
type state uint8

const (
	silent    state = iota // nothing yet
	preparing              // it will be started
	online                 // it runs
	offline                // its node is lost
	ended                  // terminal: nothing of it is left
)

func (s state) String() string {
	return [...]string{"nothing", "PREPARING", "ONLINE", "OFFLINE", "ended"}[s]
}

type intent struct {
	mod     rev
	gen     gen
	stopped bool
}

type placement struct {
	mod rev
	gen gen
}

type status struct {
	mod rev
	gen gen
	is  state
	// aged is true when the margin has passed since OFFLINE was written.
	aged bool
}

// records are the keys that views see.
type records struct {
	session   [maxNodes]rev // the create-revision of each node's session key
	intent    [maxInstances]intent
	placement [maxNodes][maxInstances]placement
	alloc     [maxNodes]rev // mod-revisions
	status    [maxInstances]status
}

// shard is an ownership key.
type shard struct {
	create rev
	by     uint8 // the replica on whose lease it stands
}

// owners are the keys on the leases of one service's replicas.
type owners struct {
	session [maxReplicas]rev
	shard   [maxShards]shard
}

// replica is a process of a service: what it believes, and what it has on the way.
type replica struct {
	session rev
	holds   [maxShards]rev
	looked  bool
	view    records
	// doubt is 1 + the node of a placement whose answer was lost.
	doubt      uint8
	doubtShard uint8
	// sent is a transaction whose answer was lost: it may still arrive.
	sent txn
}

// run is one instance on one node.
type run struct {
	// Of the journal: the highest generation begun, and whether it is to end.
	begun  gen
	ended  bool
	placed rev // the mod-revision of its placement
	// Of the machine: the generation of which a process lives, and whether it was killed.
	lives gen
	dying bool
	// Of the agent's memory.
	claimed   bool // it may be started under the present session
	starting  bool // a start was decided and not yet carried out
	startedBy rev  // the session it was decided under
	read      bool // readRev and told are known
	readRev   rev
	told      state
	// sent is a status whose answer was lost: it may still arrive.
	sent report
}

// report is a status on its way.
type report struct {
	is      state // silent: there is none
	gen     gen
	fence   rev
	compare rev
	placed  rev // the placement's mod-revision, for a claim
}

// host is a node: a machine and its agent.
type host struct {
	session rev // what the agent believes
	// spent is true when the deadline of the latest session has passed unrenewed.
	spent bool
	runs  [maxInstances]run
}

// State is all there is: the keys, the processes' memories, the machines, the network.
type State struct {
	keys       records
	schedulers owners
	enforcers  owners
	scheduler  [maxReplicas]replica
	enforcer   [maxReplicas]replica
	host       [maxNodes]host
}

// newest is the revision of the last change, as far as anything refers to it.
func (s *State) newest() rev {
	var top rev
	s.revs(func(r *rev) { top = max(top, *r) })
	return top
}

// next is the revision of the next change.
func (s *State) next() rev { return s.newest() + 1 }

// revs visits every revision there is.
func (s *State) revs(visit func(*rev)) {
	s.keys.revs(visit)
	for _, o := range []*owners{&s.schedulers, &s.enforcers} {
		for i := range o.session {
			visit(&o.session[i])
		}
		for i := range o.shard {
			visit(&o.shard[i].create)
		}
	}
	for i := range maxReplicas {
		s.scheduler[i].revs(visit)
		s.enforcer[i].revs(visit)
	}
	for n := range s.host {
		h := &s.host[n]
		visit(&h.session)
		for i := range h.runs {
			r := &h.runs[i]
			if r.begun == 0 {
				continue
			}
			visit(&r.placed)
			visit(&r.startedBy)
			visit(&r.readRev)
			visit(&r.sent.fence)
			visit(&r.sent.compare)
			visit(&r.sent.placed)
		}
	}
}

func (k *records) revs(visit func(*rev)) {
	for n := range maxNodes {
		visit(&k.session[n])
		visit(&k.alloc[n])
		for i := range maxInstances {
			visit(&k.placement[n][i].mod)
		}
	}
	for i := range maxInstances {
		visit(&k.intent[i].mod)
		visit(&k.status[i].mod)
	}
}

func (r *replica) revs(visit func(*rev)) {
	visit(&r.session)
	for k := range r.holds {
		visit(&r.holds[k])
	}
	if r.looked {
		r.view.revs(visit)
	}
	if t := &r.sent; t.kind != nothing {
		visit(&t.fence)
		visit(&t.intent)
		visit(&t.status)
		visit(&t.old)
		visit(&t.here)
		visit(&t.alloc)
	}
}

// gens visits every generation of an instance there is.
func (s *State) gens(i int, visit func(*gen)) {
	s.keys.gens(i, visit)
	for n := range maxReplicas {
		for _, r := range []*replica{&s.scheduler[n], &s.enforcer[n]} {
			if r.looked {
				r.view.gens(i, visit)
			}
			if r.sent.kind != nothing && int(r.sent.instance) == i {
				visit(&r.sent.gen)
			}
		}
	}
	for n := range s.host {
		r := &s.host[n].runs[i]
		visit(&r.begun)
		visit(&r.lives)
		visit(&r.sent.gen)
	}
}

func (k *records) gens(i int, visit func(*gen)) {
	visit(&k.intent[i].gen)
	visit(&k.status[i].gen)
	for n := range maxNodes {
		visit(&k.placement[n][i].gen)
	}
}

// renumber makes revisions and generations as small as their order allows: the
// protocol only ever asks which is equal or greater, so nothing changes by it, and
// what would go on for ever becomes finite.
func (s *State) renumber() {
	var n numbers
	s.revs(func(r *rev) { n.use(uint8(*r)) })
	n.rank()
	s.revs(func(r *rev) { *r = rev(n.of[*r]) })
	for i := range maxInstances {
		n = numbers{}
		s.gens(i, func(g *gen) { n.use(uint8(*g)) })
		n.rank()
		s.gens(i, func(g *gen) { *g = gen(n.of[*g]) })
	}
}

// numbers are those in use, and then their ranks. 0 stays 0.
type numbers struct {
	of  [256]uint8
	top uint8
}

func (n *numbers) use(v uint8) {
	n.of[v] = 1
	n.top = max(n.top, v)
}

func (n *numbers) rank() {
	n.of[0] = 0
	var rank uint8
	for v := range int(n.top) {
		if n.of[v+1] != 0 {
			rank++
			n.of[v+1] = rank
		}
	}
}
