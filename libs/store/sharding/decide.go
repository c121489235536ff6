// Package sharding decides which replica of a service owns which shard. Share assigns the shards to
// the live replicas. A Decider then says what one replica claims and releases, so that the keys in
// etcd follow that assignment.
//
// The package is pure: the caller reads the keys, passes the time, and writes what was decided.
package sharding

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

// Scene is the state of one service's replicas and shards at one revision.
type Scene struct {
	Sessions map[string]Presence
	Shards   [fleet.ShardCount]Holding
}

// Presence is a live replica's session key: the revision at which it was created, and the revision
// of the last write of it.
type Presence struct{ Created, Written int64 }

// Holding is one shard's key. The zero value is a free shard.
type Holding struct {
	Replica   string
	CreateRev int64
	// Mine is true if the key has the observer's own lease.
	Mine bool
}

// Decider decides what a replica owns, releases and claims. It only remembers what no record shows:
// since when shards have been waiting for their owner, which owners this replica replaces
// temporarily, and since when others hold its own shards. Apart from that its methods are pure.
type Decider struct {
	// Self is the name of the replica.
	Self string
	// Patience is how long a free shard waits for a live owner.
	Patience time.Duration

	vacant [fleet.ShardCount]vacancy
	// absent are the owners whose shards this replica holds, by the revision of their last session
	// write; 0 for none.
	absent [fleet.ShardCount]int64
	// withheld is since when other replicas hold shards of ours; zero if they do not.
	withheld time.Time
	// rewrites counts the rewrites of our session record since this replica last had its share.
	rewrites int
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

// rewriteLimit bounds the doubling of the interval between rewrites: 64 times the patience.
const rewriteLimit = 6

// Steps are the actions of a replica. A shard is in at most one list.
type Steps struct {
	// Own are the held shards to decide about, Release those to release.
	Own, Release []int
	// Claim are the free shards to claim.
	Claim []int
	// Rewrite requests a rewrite of the session record, to signal that this replica can take its
	// shards.
	Rewrite bool
	// Again is when to run again if nothing changes; zero means never.
	Again time.Time
}

// Cause returns why the replica last claimed a shard.
func (d *Decider) Cause(n int) Takeover { return d.causes[n] }

// Decide compares a scene with the shares of the live replicas.
//
// A replica that holds the shard of an absent owner keeps it until the shard gets another owner, or
// the owner has rewritten its session record since. So no shard alternates between a replica that
// does not claim and one that does. A replica rewrites its record if others hold its shards for too
// long; a replica that hangs cannot.
func (d *Decider) Decide(s *Scene, now time.Time) (out Steps) {
	owner := Share(slices.Collect(maps.Keys(s.Sessions)))
	withheld := false
	for n, h := range s.Shards {
		due := s.Sessions[owner[n]].Written
		switch {
		case h.Mine:
			d.held(n, owner[n], due, &out)
		case h.CreateRev != 0:
			d.vacant[n], d.absent[n], d.last[n] = vacancy{}, 0, h.Replica
			withheld = withheld || owner[n] == d.Self
		case owner[n] == d.Self:
			d.vacant[n], d.absent[n], d.causes[n] = vacancy{}, 0, d.cause(s, n)
			out.Claim = append(out.Claim, n)
		case d.overdue(n, due, now):
			d.absent[n], d.causes[n] = due, TakeoverUnclaimed
			out.Claim = append(out.Claim, n)
		default:
			d.absent[n] = 0
			out.lookAgain(d.vacant[n].since.Add(d.Patience))
		}
	}
	d.rewrite(withheld, now, &out)
	return out
}

// held decides about a shard that this replica holds.
func (d *Decider) held(n int, owner string, due int64, out *Steps) {
	d.vacant[n] = vacancy{}
	switch {
	case owner == d.Self:
		d.absent[n] = 0
	case d.absent[n] != due:
		out.Release, d.last[n] = append(out.Release, n), owner
		return
	}
	out.Own, d.last[n] = append(out.Own, n), d.Self
}

// rewrite decides whether to rewrite the session record.
func (d *Decider) rewrite(withheld bool, now time.Time, out *Steps) {
	if !withheld {
		d.withheld = time.Time{}
		if len(out.Claim) == 0 { // the shards are back
			d.rewrites = 0
		}
		return
	}
	if d.withheld.IsZero() {
		d.withheld = now
	}
	if next := d.withheld.Add(d.Patience << d.rewrites); now.Before(next) {
		out.lookAgain(next)
		return
	}
	out.Rewrite, d.withheld, d.rewrites = true, now, min(d.rewrites+1, rewriteLimit)
}

func (s *Steps) lookAgain(at time.Time) {
	if s.Again.IsZero() || at.Before(s.Again) {
		s.Again = at
	}
}

// overdue records that a shard waits for its owner, and reports whether it has waited too long.
func (d *Decider) overdue(n int, owner int64, now time.Time) bool {
	if d.vacant[n].owner != owner {
		d.vacant[n] = vacancy{owner, now}
	}
	return now.Sub(d.vacant[n].since) >= d.Patience
}

func (d *Decider) cause(s *Scene, n int) Takeover {
	_, lives := s.Sessions[d.last[n]]
	switch {
	case d.last[n] == d.Self:
		return TakeoverFree
	case d.last[n] == "": // an older replica held it until this one joined
		for _, session := range s.Sessions {
			if session.Created < s.Sessions[d.Self].Created {
				return TakeoverHanded
			}
		}
		return TakeoverFree
	case lives:
		return TakeoverHanded
	}
	return TakeoverEnded
}
