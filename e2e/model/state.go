package model

import "fmt"

// The size of the largest fleet that fits into a State. Config says how much of it is used.
const (
	maxReplicas  = 2
	maxShards    = 2
	maxNodes     = 2
	maxInstances = 2
)

// rev is an etcd revision; 0 means that the key does not exist.
type rev uint8

// gen is a generation of an instance; 0 means none.
type gen uint8

func (g gen) String() string { return fmt.Sprintf("generation %d", uint8(g)) }

// join identifies a join of a node; 0 means none. It stands for the revision of the node's
// record, which is only ever compared with itself.
type join uint8

// state is the content of a status record.
type state uint8

const (
	silent    state = iota // no status yet
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
	// leaves is the mod revision of the OFFLINE that it was requested for, and left the
	// lost node's latest join at that time; 0 for other generations.
	leaves rev
	left   join
}

type placement struct {
	mod rev
	gen gen
}

type status struct {
	mod rev
	gen gen
	is  state
}

// records are the keys that views show.
type records struct {
	session   [maxNodes]rev  // the create revision of each node's session key
	joined    [maxNodes]join // the latest join of each node
	intent    [maxInstances]intent
	placement [maxNodes][maxInstances]placement
	alloc     [maxNodes]rev // mod revisions
	status    [maxInstances]status
}

// shard is an ownership key.
type shard struct {
	create rev
	by     uint8 // the replica that holds its lease
}

// owners are the keys on the leases of one service's replicas.
type owners struct {
	session [maxReplicas]rev
	shard   [maxShards]shard
}

// replica is a process of a service: its beliefs and its pending transaction.
type replica struct {
	session rev
	holds   [maxShards]rev
	looked  bool
	view    records
	// doubt is 1 + the node of a placement whose answer was lost.
	doubt uint8
	// sent is a transaction whose answer was lost; it may still arrive.
	sent txn
}

// run is one instance on one node.
type run struct {
	// In the journal: the highest generation begun, and whether it should end.
	begun  gen
	ended  bool
	placed rev // the mod revision of its placement
	// On the machine: the generation of the living process, and whether it was killed.
	lives gen
	dying bool
	// In the agent's memory.
	claimed   bool // it may be started under the current session
	starting  bool // a start was decided and is not done yet
	startedBy rev  // the session under which it was decided
	read      bool // readRev and told are known
	readRev   rev
	told      state
	// sent is a status whose answer was lost; it may still arrive.
	sent report
}

// report is a status on its way.
type report struct {
	is      state // silent means none
	gen     gen
	fence   rev
	compare rev
	placed  rev // the placement's mod revision, for a claim
}

// host is a machine and its agent.
type host struct {
	session rev // what the agent believes
	// spent is true when the latest session has passed its deadline without renewal.
	spent bool
	runs  [maxInstances]run
}

// State is the whole state: the keys, the processes' memories, the machines, the network.
type State struct {
	keys       records
	schedulers owners
	enforcers  owners
	scheduler  [maxReplicas]replica
	enforcer   [maxReplicas]replica
	host       [maxNodes]host
	// over is true when the wait after the loss of a node's session has ended: TTL and
	// margin have passed since the key disappeared, or the agent released its instances.
	over [maxNodes]bool
}

// next returns the revision of the next change.
func (s *State) next() rev {
	var top rev
	for _, r := range s.revs(make([]*rev, 0, maxRevs)) {
		top = max(top, *r)
	}
	return top + 1
}

// maxRevs, maxJoins and maxGens bound the revisions and joins of a state and the
// generations of one instance.
const maxRevs, maxJoins, maxGens = 192, 32, 64

// revs appends pointers to all revisions.
func (s *State) revs(to []*rev) []*rev {
	to = s.keys.revs(to)
	for _, o := range []*owners{&s.schedulers, &s.enforcers} {
		for i := range o.session {
			to = append(to, &o.session[i])
		}
		for i := range o.shard {
			to = append(to, &o.shard[i].create)
		}
	}
	for i := range maxReplicas {
		to = s.scheduler[i].revs(to)
		to = s.enforcer[i].revs(to)
	}
	for n := range s.host {
		h := &s.host[n]
		to = append(to, &h.session)
		for i := range h.runs {
			if r := &h.runs[i]; r.begun != 0 {
				to = append(to, &r.placed, &r.startedBy, &r.readRev, &r.sent.fence, &r.sent.compare, &r.sent.placed)
			}
		}
	}
	return to
}

func (k *records) revs(to []*rev) []*rev {
	for n := range maxNodes {
		to = append(to, &k.session[n], &k.alloc[n])
		for i := range maxInstances {
			to = append(to, &k.placement[n][i].mod)
		}
	}
	for i := range maxInstances {
		to = append(to, &k.intent[i].mod, &k.intent[i].leaves, &k.status[i].mod)
	}
	return to
}

func (r *replica) revs(to []*rev) []*rev {
	to = append(to, &r.session)
	for k := range r.holds {
		to = append(to, &r.holds[k])
	}
	if r.looked {
		to = r.view.revs(to)
	}
	if t := &r.sent; t.kind != nothing {
		to = append(to, &t.fence, &t.intent, &t.status, &t.old, &t.here, &t.alloc, &t.leaves)
	}
	return to
}

// gens appends pointers to all generations of an instance.
func (s *State) gens(i int, to []*gen) []*gen {
	to = s.keys.gens(i, to)
	for n := range maxReplicas {
		for _, r := range []*replica{&s.scheduler[n], &s.enforcer[n]} {
			if r.looked {
				to = r.view.gens(i, to)
			}
			if r.sent.kind != nothing && int(r.sent.instance) == i {
				to = append(to, &r.sent.gen)
			}
		}
	}
	for n := range s.host {
		r := &s.host[n].runs[i]
		to = append(to, &r.begun, &r.lives, &r.sent.gen)
	}
	return to
}

func (k *records) gens(i int, to []*gen) []*gen {
	to = append(to, &k.intent[i].gen, &k.status[i].gen)
	for n := range maxNodes {
		to = append(to, &k.placement[n][i].gen)
	}
	return to
}

// joins appends pointers to all joins.
func (s *State) joins(to []*join) []*join {
	to = s.keys.joins(to)
	for n := range maxReplicas {
		for _, r := range []*replica{&s.scheduler[n], &s.enforcer[n]} {
			if r.looked {
				to = r.view.joins(to)
			}
			to = append(to, &r.sent.joined)
		}
	}
	return to
}

func (k *records) joins(to []*join) []*join {
	for n := range maxNodes {
		to = append(to, &k.joined[n])
	}
	for i := range maxInstances {
		to = append(to, &k.intent[i].left)
	}
	return to
}

// nextJoin returns the next join of any node.
func (s *State) nextJoin() join {
	var top join
	for _, j := range s.joins(make([]*join, 0, maxJoins)) {
		top = max(top, *j)
	}
	return top + 1
}

// renumber makes revisions and generations as small as their order allows. The protocol
// only compares them, so this changes nothing, and it makes the number of states finite.
func (s *State) renumber() {
	rank(s.revs(make([]*rev, 0, maxRevs)))
	rank(s.joins(make([]*join, 0, maxJoins)))
	for i := range maxInstances {
		if s.keys.intent[i].mod != 0 {
			rank(s.gens(i, make([]*gen, 0, maxGens)))
		}
	}
}

// rank replaces numbers by their ranks. 0 stays 0.
func rank[N ~uint8](numbers []*N) {
	var ranks [256]uint8
	var top N
	for _, n := range numbers {
		ranks[*n] = 1
		top = max(top, *n)
	}
	ranks[0] = 0
	var rank uint8
	for v := range int(top) + 1 {
		if ranks[v] != 0 {
			rank++
			ranks[v] = rank
		}
	}
	for _, n := range numbers {
		*n = N(ranks[*n])
	}
}
