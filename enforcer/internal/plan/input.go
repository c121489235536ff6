package plan

import (
	"cmp"
	"iter"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/scale"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// Input is everything that Group depends on. Group does not change the records. All
// functions are required.
type Input struct {
	// Group is the group including what it inherits. It is nil when the group's record is missing.
	// Then the pass only carries out what the intents of the instances say.
	Group *fleet.Group
	// Ancestors are the groups it inherits from, the parent first. A change of one of them
	// may fix the crashes.
	Ancestors []*fleet.Group
	// Maintenance reports whether all groups are in maintenance. The group may be so alone.
	Maintenance bool
	// Unnumbered reports whether the group has no number; see cluster.Tenant.
	Unnumbered bool
	// Unmet reports whether no instance is ONLINE of a group that this one depends on.
	Unmet bool
	// Deployments are those of the group, oldest first.
	Deployments []deployment.Joined
	// Instances are all instances of the group, in any order.
	Instances []*fleet.Instance
	// CrashLoop is the group's crash loop, or nil.
	CrashLoop *crashloop.Loop
	// Scaled is the group's latest scaling decision, or nil. Its Target is 0 if it no longer applies.
	Scaled *scaling.Decision
	// Rules are the scaling policies of the group, and Wall is the time of day for them.
	Rules []scaling.Rule
	Wall  time.Time
	// Scales is told each look at the load of the group and what came of it. It may be nil, and
	// nothing depends on it.
	Scales func(scale.Input, scale.Outcome)
	// Crashes are the recorded crashes of all groups. The latest ones may be missing.
	Crashes iter.Seq[*reports.Crash]
	// Elsewhere reports whether any other node takes instances.
	Elsewhere func(fleet.NodeID) bool
	// Session returns a node's live session, or nil.
	Session func(fleet.NodeID) *fleet.NodeSession
	// LostSince returns when a node was first seen without a session; zero while it has
	// one.
	LostSince func(fleet.NodeID) time.Time
	// TTL returns the TTL of a node's latest session.
	TTL func(fleet.NodeID) time.Duration
	// Joined returns the revision of a node's record. Each join writes the record.
	Joined func(fleet.NodeID) int64
	// Released reports whether a node's agent ended all instances before it closed its
	// latest session.
	Released func(fleet.NodeID) bool
	// Deleted reports whether an operator deleted a node.
	Deleted func(fleet.NodeID) bool
	// Drain returns the drain of a node until a user ends it, or nil.
	Drain func(fleet.NodeID) *fleet.NodeDrain
	// Move returns the latest move of an instance and how far its copy is. Both may be nil.
	Move func(fleet.InstanceID) (*move.Move, *move.Copy)
	// Gone reports whether a node was deleted, or has joined again with another data directory.
	Gone func(node fleet.NodeID, dataUUID string) bool
	// Outage says how much of the fleet is lost.
	Outage Outage
	// Republished reports whether a template of a plan has a newer version than the plan
	// uses.
	Republished func(plan string) bool
	// Plan returns a stored plan, or nil.
	Plan func(digest string) *fleet.Plan
	// Eviction returns the eviction requested for an instance, or nil.
	Eviction func(fleet.InstanceID) *fleet.Eviction
	// Waits reports whether an instance of any group waits for placement.
	Waits func(fleet.InstanceID) bool
	// Outranks reports whether an instance's group may preempt instances of a priority.
	Outranks func(id fleet.InstanceID, priority int) bool
	// Players returns the reported number of players of an instance; 0 when unknown. The slots of
	// its allocations count as players who are about to come.
	Players func(*fleet.Instance) int
	// Figures returns what an instance reports, zero when unknown.
	Figures func(*fleet.Instance) reports.InstanceReport
	// EmptySince returns since when an instance without players is known to have none.
	EmptySince func(*fleet.Instance) time.Time
	Limits     Limits
}

// Outage counts the nodes that have a session or were lost recently, and the lost ones
// among them.
type Outage struct {
	Nodes, Lost int
	// MassUntil is when the latest mass outage was last seen, or zero.
	MassUntil time.Time
}

// Mass reports whether so many nodes are lost at once that the likely cause is the store or
// the network. Replacing all instances would then overload the remaining nodes.
func (o Outage) Mass(l Limits) bool {
	return o.Lost >= l.MassLossNodes && float64(o.Lost) > l.MassLossShare*float64(o.Nodes)
}

// Limits are the parameters of the rules.
type Limits struct {
	// CrashLimit crashes within CrashWindow pause a group. CrashLimit is at least 1.
	CrashLimit  int
	CrashWindow time.Duration
	// BackoffFirst is the delay after the second crash of the window; it doubles up to BackoffMax.
	BackoffFirst, BackoffMax time.Duration
	// SetbackFor is the delay after a failure that is not a crash of the group.
	SetbackFor time.Duration
	// PauseFirst is the length of the first pause; it doubles up to PauseMax.
	PauseFirst, PauseMax time.Duration
	// Quiet is the shortest time without a crash that resets the level of the pauses.
	Quiet time.Duration
	// KeepFor is how long a finished instance's records are kept, and KeepRecords how many
	// per group.
	KeepFor     time.Duration
	KeepRecords int
	// CrashFor is how long a recorded crash is kept, and CrashRecords how many in total.
	CrashFor     time.Duration
	CrashRecords int
	// PlanFor is how long an unreferenced plan is kept.
	PlanFor time.Duration
	// PrepareFor limits PREPARING. StartSlack and StopSlack are added to the limits of
	// STARTING and STOPPING, which the agent enforces first.
	PrepareFor, StartSlack, StopSlack time.Duration
	// LeaveFor limits how long an agent may take to shut down.
	LeaveFor time.Duration
	// LossGrace is how long a node may be without a session before its instances count as
	// lost. A restarting agent opens a new session.
	LossGrace time.Duration
	// LossWait is how long to wait for further losses before a lost node's instances are
	// replaced. 0 means a third of the TTL of the node's session, which is the interval of
	// keep-alives.
	LossWait time.Duration
	// MassLossNodes and MassLossShare define a mass outage: at least MassLossNodes nodes
	// and more than MassLossShare of all are lost. During one, nothing is replaced. A
	// MassLossNodes of 0 means 1.
	MassLossNodes int
	MassLossShare float64
	// RoomFor is how long freed resources are kept for the beneficiary of a preemption.
	RoomFor time.Duration
	// MoveFor limits the time until the replacement of a moved instance is ready.
	MoveFor time.Duration
	// RetireGrace is how long an instance that begins to retire stays although it is empty, because
	// proxies may still send players to it.
	RetireGrace time.Duration
	// Batch limits the starts and the deletions of one pass.
	Batch int
}

// DefaultLimits returns the default parameters.
func DefaultLimits() Limits {
	return Limits{
		CrashLimit: 3, CrashWindow: 5 * time.Minute,
		BackoffFirst: time.Second, BackoffMax: time.Minute, SetbackFor: 10 * time.Second,
		PauseFirst: time.Minute, PauseMax: time.Hour, Quiet: 10 * time.Minute,
		KeepFor: time.Hour, KeepRecords: 20, CrashFor: 30 * 24 * time.Hour, CrashRecords: 500, PlanFor: time.Hour,
		PrepareFor: 10 * time.Minute, StartSlack: 15 * time.Second, StopSlack: 30 * time.Second,
		LeaveFor: time.Minute, LossGrace: 500 * time.Millisecond,
		MassLossNodes: fleet.MassLossNodes, MassLossShare: fleet.MassLossShare, RoomFor: time.Minute, MoveFor: 5 * time.Minute, RetireGrace: 5 * time.Second, Batch: 1000,
	}
}

// lossWait returns LossWait, or its default for a node whose session has the given TTL.
func (l Limits) lossWait(ttl time.Duration) time.Duration { return cmp.Or(l.LossWait, ttl/3) }
