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
	// sessions are the live replicas with their sessions' create-revisions.
	sessions map[string]int64
	shards   [fleet.ShardCount]holding
}

// holding is one shard's key. The zero holding is a free shard.
type holding struct {
	replica   string
	createRev int64
	// mine is true when it stands on the observer's own lease.
	mine bool
}

// duty decides what a replica owns, gives up and claims. It remembers only what
// no record shows: since when shards have been waiting for their owner, and for
// whom this replica stands in. All methods are pure but for that.
type duty struct {
	self string
	// patience is how long a free shard waits for a living owner.
	patience time.Duration

	vacant [fleet.ShardCount]vacancy
	// absent are the sessions, by create-revision, that this replica stands in for; 0 for none.
	absent [fleet.ShardCount]int64
	// last are the replicas that were last seen to hold each shard, or were given it.
	last [fleet.ShardCount]string
	// causes are those of the latest claims.
	causes [fleet.ShardCount]Takeover
}

// vacancy is a free shard that belongs to a living replica.
type vacancy struct {
	owner int64 // its session
	since time.Time
}

// steps are what a replica has to do. Each shard is in one list at most.
type steps struct {
	// own are the shards on the own lease to decide about, release those to give up.
	own, release []int
	// claim are the free shards to take.
	claim []int
	// again is when to look again though nothing changed; zero when never.
	again time.Time
}

// decide compares a scene with the share of the living replicas.
//
// A stand-in keeps its shard until the share names another session than the one it
// stands in for, so no shard goes back and forth between a replica that does not
// claim and one that does.
func (d *duty) decide(s *scene, now time.Time) (out steps) {
	owner := share(slices.Collect(maps.Keys(s.sessions)))
	for n, h := range s.shards {
		due := s.sessions[owner[n]]
		switch {
		case h.mine:
			d.vacant[n] = vacancy{}
			if owner[n] == d.self {
				d.absent[n] = 0
			}
			if owner[n] == d.self || d.absent[n] == due {
				out.own, d.last[n] = append(out.own, n), d.self
			} else {
				out.release, d.last[n] = append(out.release, n), owner[n]
			}
			continue
		case h.createRev != 0:
			d.vacant[n], d.absent[n], d.last[n] = vacancy{}, 0, h.replica
			continue
		case owner[n] == d.self:
			d.vacant[n], d.absent[n] = vacancy{}, 0
			d.causes[n] = d.cause(s, n)
		case !d.overdue(n, due, now):
			d.absent[n] = 0
			if at := d.vacant[n].since.Add(d.patience); out.again.IsZero() || at.Before(out.again) {
				out.again = at
			}
			continue
		default:
			d.absent[n], d.causes[n] = due, TakeoverUnclaimed
		}
		out.claim = append(out.claim, n)
	}
	return out
}

// overdue notes that a shard waits for a session, and says whether it did so too long.
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
			if session < s.sessions[d.self] {
				return TakeoverHanded
			}
		}
		return TakeoverFree
	case lives:
		return TakeoverHanded
	}
	return TakeoverEnded
}
