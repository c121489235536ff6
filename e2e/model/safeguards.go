package model

import "strings"

// Safeguard is one comparison or rule of the protocol. A configuration can leave it out.
type Safeguard uint32

// Safeguards of the protocol.
const (
	// Fence: a transaction for a shard compares the create revision of the shard's key.
	Fence Safeguard = 1 << iota
	// ClaimFree: a claim compares that the shard's key does not exist.
	ClaimFree
	// ViewPastOwnership: an owner plans only from a view that includes its claim.
	ViewPastOwnership
	// ViewPastCommit: an owner plans only from a view that includes its last commit.
	ViewPastCommit
	// Settle: after a lost answer the owner plans nothing until the transaction has
	// happened or can no longer happen.
	Settle
	// IntentUnchanged: a placement compares its intent.
	IntentUnchanged
	// AllocUnchanged: a placement compares and touches its node's alloc key.
	AllocUnchanged
	// PlacementUnchanged: a placement compares its own key and the one it replaces.
	PlacementUnchanged
	// MoveUnchanged: a placement that leaves a lost node compares the OFFLINE that caused
	// it.
	MoveUnchanged
	// MoveAsked: such a placement is made only while the OFFLINE exists for which the
	// generation was requested.
	MoveAsked
	// MoveMissing: such a placement also compares that the node has no session.
	MoveMissing
	// MoveRejoin: such a placement also compares that the node has not joined since the
	// generation was requested.
	MoveRejoin

	// OfflineMissing: OFFLINE is written only if the node's session key does not exist.
	OfflineMissing
	// OfflineUnchanged: OFFLINE compares the status it replaces.
	OfflineUnchanged
	// AgainUnchanged: the next generation compares the OFFLINE that caused it.
	AgainUnchanged
	// AgainRejoin: the next generation compares that the lost node has not joined since.
	AgainRejoin
	// AgainMargin: the next generation waits until killed processes on the lost node are
	// gone.
	AgainMargin
	// AgainTTL: before that, it waits one TTL from when the session disappeared. By then
	// the node's deadline has passed.
	AgainTTL

	// StatusFence: an agent's status compares the create revision of its session key.
	StatusFence
	// StatusUnchanged: an agent's status compares the record it replaces.
	StatusUnchanged
	// ReleaseEmpty: an agent that closes its session releases exclusive instances only when
	// none of them runs or starts.
	ReleaseEmpty
	// Deadline: an exclusive process is killed before the deadline.
	Deadline
	// Guard: the process is also killed when the agent is dead or paused.
	Guard
	// StartSeen: an exclusive process starts only after the agent has seen the placement
	// under its current session.
	StartSeen
	// StartClaimed: it starts only after the agent has written a status for it under its
	// current session. This includes StartSeen.
	StartClaimed
	// ClaimPlaced: that status compares the placement.
	ClaimPlaced
	// StartChecked: the starter checks at the moment of the start that the session is still
	// current and its deadline has not passed.
	StartChecked

	// All is the set of all safeguards.
	All = 1<<iota - 1
)

// Config is a fleet and the events that may happen to it.
type Config struct {
	// Schedulers and Enforcers are the replicas of each service, at most 2. With 0
	// enforcers, their work happens by itself.
	Schedulers, Enforcers int
	// Shards, Nodes and Instances are at most 2 each. For the scheduler, instance i is in
	// shard i mod Shards; the enforcer has one shard. A node has room for one instance.
	Shards, Nodes, Instances int
	// Owners lets replicas lose and hand over their shards. Without it, each shard has one
	// owner forever.
	Owners bool
	// LostAnswers lets answers get lost and transactions arrive late.
	LostAnswers bool
	// Agents models machines. Without it, every node has a session forever, and a placed
	// instance may be reported as ended at any time.
	Agents bool
	// Spare lets the second node's agent keep one session forever and its processes
	// continue.
	Spare bool
	// Ordinary makes the instances ordinary ones, which may run twice. They are not killed
	// at a deadline, need no claim, and stay on a lost node until it returns.
	Ordinary bool
	// Stops lets a user stop instances.
	Stops bool
	// InForce are the safeguards that apply.
	InForce Safeguard
	// HarmOnly drops the rules about who may write and when, to show the consequences of
	// breaking them.
	HarmOnly bool
	// Plain keeps memories without a possible effect in the states. This must not change a
	// verdict, only the number of states.
	Plain bool
}

// forExclusive are the safeguards that only concern exclusive instances.
const forExclusive = ReleaseEmpty | Deadline | Guard | StartSeen | StartClaimed | ClaimPlaced | StartChecked

func (c *Config) keeps(s Safeguard) bool {
	inForce := c.InForce
	if c.Ordinary {
		inForce &^= forExclusive
	}
	return inForce&s == s
}

// names describes the safeguards, in order.
var names = [...]string{
	"shard fence", "claim of a free shard only", "view past the claim", "view past the commit", "settling",
	"intent unchanged", "alloc unchanged", "placement unchanged", "move: OFFLINE unchanged", "move: asked for this OFFLINE", "move: no session", "move: node not joined again",
	"OFFLINE: no session", "OFFLINE: status unchanged", "next generation: status unchanged", "next generation: node not joined again",
	"next generation: margin", "next generation: TTL",
	"session fence", "status unchanged", "release: nothing left", "deadline", "guard",
	"start: placement seen", "start: claimed", "claim: placement unchanged", "start: checked",
}

// String lists the safeguards of a set.
func (g Safeguard) String() string {
	var in []string
	for n, name := range names {
		if g&(1<<n) != 0 {
			in = append(in, name)
		}
	}
	return strings.Join(in, ", ")
}
