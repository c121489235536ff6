package model

import "strings"

// Safeguard is one comparison or rule of the protocol, which can be left out.
type Safeguard uint32

// The safeguards.
const (
	// Fence: a transaction made for a shard compares the create-revision of its key.
	Fence Safeguard = 1 << iota
	// ClaimFree: a claim compares that the shard's key does not exist.
	ClaimFree
	// ViewPastOwnership: an owner plans from a view at or past its own claim.
	ViewPastOwnership
	// ViewPastCommit: an owner plans from a view at or past its own last commit.
	ViewPastCommit
	// Settle: after a lost answer nothing is planned until the transaction has
	// happened or never will.
	Settle
	// IntentUnchanged: a placement compares the intent it carries out.
	IntentUnchanged
	// AllocUnchanged: a placement compares and touches its node's alloc key.
	AllocUnchanged
	// PlacementUnchanged: a placement compares its own key and the one it replaces.
	PlacementUnchanged
	// MoveUnchanged: a placement that leaves a lost node compares the OFFLINE it is made for.
	MoveUnchanged
	// MoveAsked: it is made only while the OFFLINE stands for which the generation was
	// asked for.
	MoveAsked
	// MoveMissing: it compares also that the node has no session.
	MoveMissing
	// MoveRejoin: it compares also that the node has not joined since the generation was asked for.
	MoveRejoin

	// OfflineMissing: OFFLINE is written only if the node's session key does not exist.
	OfflineMissing
	// OfflineUnchanged: OFFLINE compares the status it replaces.
	OfflineUnchanged
	// AgainUnchanged: the next generation compares the OFFLINE it is made for.
	AgainUnchanged
	// AgainRejoin: it compares that the lost node has not joined since.
	AgainRejoin
	// AgainMargin: it waits until what was killed on the lost node is gone.
	AgainMargin
	// AgainTTL: before that it waits a TTL from when the session disappeared: by then the
	// deadline of the node has passed.
	AgainTTL

	// StatusFence: an agent's status compares the create-revision of its session key.
	StatusFence
	// StatusUnchanged: an agent's status compares the record it replaces.
	StatusUnchanged
	// ReleaseEmpty: an agent that closes its session releases exclusive instances only
	// when none of them runs or starts.
	ReleaseEmpty
	// Deadline: an exclusive process is killed before the deadline.
	Deadline
	// Guard: it is killed also when the agent is dead or paused.
	Guard
	// StartSeen: an exclusive process is started only when the agent has seen, under
	// its present session, that the placement stands.
	StartSeen
	// StartClaimed: it is started only when the agent has written a status for it under
	// its present session, which is more.
	StartClaimed
	// ClaimPlaced: that status compares the placement.
	ClaimPlaced
	// StartChecked: what starts it looks, in the same instant, whether that session
	// is still the present one and its deadline is still ahead.
	StartChecked

	// All are in force.
	All = 1<<iota - 1
)

// Config is a fleet and what may happen to it.
type Config struct {
	// Schedulers, Enforcers: replicas of each service, at most 2. With 0 enforcers
	// their work happens by itself.
	Schedulers, Enforcers int
	// Shards, Nodes, Instances: at most 2 each. Instance i is of shard i mod Shards,
	// for the scheduler; the enforcer has one shard. A node has room for one instance.
	Shards, Nodes, Instances int
	// Owners has replicas lose and hand over their shards; else each shard has one owner for ever.
	Owners bool
	// LostAnswers has answers get lost and transactions arrive late.
	LostAnswers bool
	// Agents models machines; else every node has a session for ever and what was
	// placed may be reported as ended at any time.
	Agents bool
	// Spare has the second node's agent keep one session for ever and its processes run on.
	Spare bool
	// Ordinary has the instances be such as may run twice: they are not killed at a
	// deadline, need no claim, and stay on a lost node until it returns.
	Ordinary bool
	// Stops has instances be stopped by a user.
	Stops bool
	// InForce are the safeguards that are kept.
	InForce Safeguard
	// HarmOnly leaves out the rules about who may write and when, to see what follows
	// from breaking them.
	HarmOnly bool
	// Plain keeps in every state also what can no longer have an effect. It must not
	// change a verdict, only the number of states.
	Plain bool
}

// forExclusive are the safeguards that concern exclusive instances only.
const forExclusive = ReleaseEmpty | Deadline | Guard | StartSeen | StartClaimed | ClaimPlaced | StartChecked

func (c *Config) keeps(s Safeguard) bool {
	inForce := c.InForce
	if c.Ordinary {
		inForce &^= forExclusive
	}
	return inForce&s == s
}

// names are the safeguards in words, in their order.
var names = [...]string{
	"shard fence", "claim of a free shard only", "view past the claim", "view past the commit", "settling",
	"intent unchanged", "alloc unchanged", "placement unchanged", "move: OFFLINE unchanged", "move: asked for this OFFLINE", "move: no session", "move: node not joined again",
	"OFFLINE: no session", "OFFLINE: status unchanged", "next generation: status unchanged", "next generation: node not joined again",
	"next generation: margin", "next generation: TTL",
	"session fence", "status unchanged", "release: nothing left", "deadline", "guard",
	"start: placement seen", "start: claimed", "claim: placement unchanged", "start: checked",
}

// String names the safeguards of a set.
func (g Safeguard) String() string {
	var in []string
	for n, name := range names {
		if g&(1<<n) != 0 {
			in = append(in, name)
		}
	}
	return strings.Join(in, ", ")
}
