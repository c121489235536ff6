package store

import (
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Takeover is why a replica came to own a shard, as far as it can tell.
type Takeover string

const (
	// TakeoverFree is a shard that nobody held: none was seen to, and no living
	// replica is older.
	TakeoverFree Takeover = "free"
	// TakeoverHanded is a shard that a living replica gave up: we have joined, or
	// somebody whose share it was has left.
	TakeoverHanded Takeover = "handed"
	// TakeoverEnded is a shard whose holder's session ended. A clean stop and an
	// expiry look the same in the store.
	TakeoverEnded Takeover = "ended"
	// TakeoverUnclaimed is a shard whose owner lives but does not claim it.
	TakeoverUnclaimed Takeover = "unclaimed"
)

// Takeovers are all causes.
var Takeovers = []Takeover{TakeoverFree, TakeoverHanded, TakeoverEnded, TakeoverUnclaimed}

// scene is what the store says about one service's replicas and shards, at one revision.
type scene struct {
	sessions map[string]presence
	shards   [fleet.ShardCount]holding
}

// presence is a live replica's session key: when it was created and when the
// replica last spoke up, which is a write of the same record. Both are revisions.
type presence struct{ created, spoke int64 }

// holding is one shard's key. The zero holding is a free shard.
type holding struct {
	replica   string
	createRev int64
	// mine is true when it stands on the observer's own lease.
	mine bool
}

// duty decides what a replica owns, gives up and claims. It remembers only what
// no record shows: since when shards have been waiting for their owner, for whom
// this replica stands in, and since when others hold what is its own. All methods
// are pure but for that.
type duty struct {
	self string
	// patience is how long a free shard waits for a living owner.
	patience time.Duration

	vacant [fleet.ShardCount]vacancy
	// absent are whom this replica stands in for, by when they last spoke; 0 for nobody.
	absent [fleet.ShardCount]int64
	// withheld is since when others hold shards of ours; zero while nobody does.
	withheld time.Time
	// spoke is how often this replica has spoken up since it last had its share.
	spoke int
	// last are the replicas that were last seen to hold each shard, or were given it.
	last [fleet.ShardCount]string
	// causes are those of the latest claims.
	causes [fleet.ShardCount]Takeover
}

// vacancy is a free shard that belongs to a living replica.
type vacancy struct {
	owner int64 // when it last spoke
	since time.Time
}

// spokeLimit bounds the doubling of the time between speaking up: 64 times the patience.
const spokeLimit = 6

// steps are what a replica has to do. Each shard is in one list at most.
type steps struct {
	// own are the shards on the own lease to decide about, release those to give up.
	own, release []int
	// claim are the free shards to take.
	claim []int
	// speak is true when it is time to say that this replica is here for its shards.
	speak bool
	// again is when to look again though nothing changed; zero when never.
	again time.Time
}

// decide compares a scene with the share of the living replicas.
//
// A stand-in keeps its shard until the share names somebody else than the one it
// stands in for, or that one has spoken up since: so no shard goes back and forth
// between a replica that does not claim and one that does. A replica speaks up when
// others hold its shards for too long; one that hangs cannot.
func (d *duty) decide(s *scene, now time.Time) (out steps) {
	owner := share(slices.Collect(maps.Keys(s.sessions)))
	withheld := false
	for n, h := range s.shards {
		due := s.sessions[owner[n]].spoke
		switch {
		case h.mine:
			d.mine(n, owner[n], due, &out)
		case h.createRev != 0:
			d.vacant[n], d.absent[n], d.last[n] = vacancy{}, 0, h.replica
			withheld = withheld || owner[n] == d.self
		case owner[n] == d.self:
			d.vacant[n], d.absent[n], d.causes[n] = vacancy{}, 0, d.cause(s, n)
			out.claim = append(out.claim, n)
		case d.overdue(n, due, now):
			d.absent[n], d.causes[n] = due, TakeoverUnclaimed
			out.claim = append(out.claim, n)
		default:
			d.absent[n] = 0
			out.lookAgain(d.vacant[n].since.Add(d.patience))
		}
	}
	d.speak(withheld, now, &out)
	return out
}

// mine decides about a shard that is held.
func (d *duty) mine(n int, owner string, due int64, out *steps) {
	d.vacant[n] = vacancy{}
	switch {
	case owner == d.self:
		d.absent[n] = 0
	case d.absent[n] != due:
		out.release, d.last[n] = append(out.release, n), owner
		return
	}
	out.own, d.last[n] = append(out.own, n), d.self
}

// speak decides whether it is time to speak up.
func (d *duty) speak(withheld bool, now time.Time, out *steps) {
	if !withheld {
		d.withheld = time.Time{}
		if len(out.claim) == 0 { // it helped
			d.spoke = 0
		}
		return
	}
	if d.withheld.IsZero() {
		d.withheld = now
	}
	if next := d.withheld.Add(d.patience << d.spoke); now.Before(next) {
		out.lookAgain(next)
		return
	}
	out.speak, d.withheld, d.spoke = true, now, min(d.spoke+1, spokeLimit)
}

func (s *steps) lookAgain(at time.Time) {
	if s.again.IsZero() || at.Before(s.again) {
		s.again = at
	}
}

// overdue notes that a shard waits for a replica, and says whether it did so too long.
func (d *duty) overdue(n int, owner int64, now time.Time) bool {
	if d.vacant[n].owner != owner {
		d.vacant[n] = vacancy{owner, now}
	}
	return now.Sub(d.vacant[n].since) >= d.patience
}

func (d *duty) cause(s *scene, n int) Takeover {
	_, lives := s.sessions[d.last[n]]
	switch {
	case d.last[n] == d.self:
		return TakeoverFree
	case d.last[n] == "": // whoever was there before us held it until we came
		for _, session := range s.sessions {
			if session.created < s.sessions[d.self].created {
				return TakeoverHanded
			}
		}
		return TakeoverFree
	case lives:
		return TakeoverHanded
	}
	return TakeoverEnded
}
