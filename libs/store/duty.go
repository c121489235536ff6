package store

import (
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Takeover is why a replica got a shard, as far as it can tell.
type Takeover string

const (
	// TakeoverFree is a shard that no replica held: none was seen to hold it, and no live replica
	// is older.
	TakeoverFree Takeover = "free"
	// TakeoverHanded is a shard that a live replica released, because this replica joined or
	// another left.
	TakeoverHanded Takeover = "handed"
	// TakeoverEnded is a shard whose holder's session ended. A clean stop and an expiry look the
	// same.
	TakeoverEnded Takeover = "ended"
	// TakeoverUnclaimed is a shard whose owner is alive but does not claim it.
	TakeoverUnclaimed Takeover = "unclaimed"
)

// Takeovers lists all causes.
var Takeovers = []Takeover{TakeoverFree, TakeoverHanded, TakeoverEnded, TakeoverUnclaimed}

// scene is the state of one service's replicas and shards at one revision.
type scene struct {
	sessions map[string]presence
	shards   [fleet.ShardCount]holding
}

// presence is a live replica's session key: the revision at which it was created, and the revision
// of the last write of it.
type presence struct{ created, spoke int64 }

// holding is one shard's key. The zero value is a free shard.
type holding struct {
	replica   string
	createRev int64
	// mine is true if the key has the observer's own lease.
	mine bool
}

// duty decides what a replica owns, releases and claims. It only remembers what no record shows:
// since when shards have been waiting for their owner, which owners this replica replaces
// temporarily, and since when others hold its own shards. Apart from that its methods are pure.
type duty struct {
	self string
	// patience is how long a free shard waits for a live owner.
	patience time.Duration

	vacant [fleet.ShardCount]vacancy
	// absent are the owners this replica stands in for, by the revision of their last session
	// write; 0 for none.
	absent [fleet.ShardCount]int64
	// withheld is since when other replicas hold shards of ours; zero if they do not.
	withheld time.Time
	// spoke counts the rewrites of our session record since this replica last had its share.
	spoke int
	// last are the replicas last seen to hold each shard, or to which it was released.
	last [fleet.ShardCount]string
	// causes are the causes of the latest claims.
	causes [fleet.ShardCount]Takeover
}

// vacancy is a free shard whose owner is alive.
type vacancy struct {
	owner int64 // revision of its last session write
	since time.Time
}

// spokeLimit bounds the doubling of the interval between rewrites: 64 times the patience.
const spokeLimit = 6

// steps are the actions of a replica. A shard is in at most one list.
type steps struct {
	// own are the held shards to decide about, release those to release.
	own, release []int
	// claim are the free shards to claim.
	claim []int
	// speak requests a rewrite of the session record, to signal that this replica can take its
	// shards.
	speak bool
	// again is when to run again if nothing changes; zero means never.
	again time.Time
}

// decide compares a scene with the shares of the live replicas.
//
// A replica that stands in for an owner keeps the shard until the shard gets another owner, or the
// owner has rewritten its session record since. So no shard alternates between a replica that does
// not claim and one that does. A replica rewrites its record if others hold its shards for too
// long; a replica that hangs cannot.
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

// mine decides about a shard that this replica holds.
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

// speak decides whether to rewrite the session record.
func (d *duty) speak(withheld bool, now time.Time, out *steps) {
	if !withheld {
		d.withheld = time.Time{}
		if len(out.claim) == 0 { // the shards are back
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

// overdue records that a shard waits for its owner, and reports whether it has waited too long.
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
	case d.last[n] == "": // an older replica held it until this one joined
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
