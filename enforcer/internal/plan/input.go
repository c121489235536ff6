package plan

import (
	"cmp"
	"iter"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Input is everything Group looks at. The records are never changed. A nil
// function knows nothing.
type Input struct {
	// Group is nil when the group's record is missing: then nothing is started,
	// stopped or deleted for it, and only what its instances' own intents say is carried out.
	Group *fleet.Group
	// Whole is what the group's instances are made of now, what it inherits included. Nil is
	// the group's own spec.
	Whole *fleet.GroupSpec
	// Ancestors are those it inherits from, the parent first: a change of one may be the cure
	// of what it crashes of.
	Ancestors []*fleet.Group
	// Instances are all instances of the group, in any order.
	Instances []*fleet.Instance
	// CrashLoop is nil when the group has none.
	CrashLoop *fleet.CrashLoop
	// Crashes are the recorded crashes of all groups; those of the moment may be missing.
	Crashes iter.Seq[*fleet.Crash]
	// Elsewhere reports whether something could run on another node than this.
	Elsewhere func(fleet.NodeID) bool
	// Session is a node's live session; nil when the node has none.
	Session func(fleet.NodeID) *fleet.NodeSession
	// LostSince is when a node was first seen without a session; zero while it has one.
	LostSince func(fleet.NodeID) time.Time
	// TTL is how long a node's latest session outlived, or would outlive, its last keep-alive.
	TTL func(fleet.NodeID) time.Duration
	// Joined is the revision of a node's record, which each join writes.
	Joined func(fleet.NodeID) int64
	// Released reports whether a node's agent had ended all instances before it closed the latest session.
	Released func(fleet.NodeID) bool
	// Deleted reports whether an operator gave a node up.
	Deleted func(fleet.NodeID) bool
	// Outage is how much of the fleet is lost.
	Outage Outage
	// Republished reports whether a template of a plan has another head than the plan names.
	Republished func(plan string) bool
	// Plan is a stored plan; nil when it is not stored.
	Plan func(digest string) *fleet.Plan
	// Eviction is what was asked of an instance; nil when nothing.
	Eviction func(fleet.InstanceID) *fleet.Eviction
	// Waits reports whether an instance of any group waits for a place.
	Waits func(fleet.InstanceID) bool
	// Outranks reports whether an instance's group may displace instances of a priority.
	Outranks func(id fleet.InstanceID, priority int) bool
	// Players is the reported number of players of an instance; 0 when unknown.
	Players func(*fleet.Instance) int
	Limits  Limits
}

// Outage counts nodes: those with a session or lost lately, and of them the lost.
type Outage struct {
	Nodes, Lost int
	// MassUntil is when the latest mass outage was last seen; zero when there was none.
	MassUntil time.Time
}

// Mass reports whether so much is lost at once that the cause is more likely the
// store's or the network's than the nodes' own: replacing it all would only press
// the same load on what is left.
func (o Outage) Mass(l Limits) bool {
	return o.Lost >= l.MassLossNodes && float64(o.Lost) > l.MassLossShare*float64(o.Nodes)
}

// Limits are the numbers behind the rules.
type Limits struct {
	// CrashLimit crashes within CrashWindow pause a group. CrashLimit is at least 1.
	CrashLimit  int
	CrashWindow time.Duration
	// BackoffFirst is the delay after the second crash of the window; it doubles up to BackoffMax.
	BackoffFirst, BackoffMax time.Duration
	// SetbackFor is the delay after a failure that is no crash of the group's.
	SetbackFor time.Duration
	// PauseFirst is the first pause; it doubles up to PauseMax.
	PauseFirst, PauseMax time.Duration
	// Quiet is the least time without a crash after which the pauses start anew.
	Quiet time.Duration
	// KeepFor is how long a finished instance's records are kept, KeepRecords how many per group.
	KeepFor     time.Duration
	KeepRecords int
	// CrashFor is how long a recorded crash is kept, CrashRecords how many in all.
	CrashFor     time.Duration
	CrashRecords int
	// PlanFor is how long an unreferenced plan is kept.
	PlanFor time.Duration
	// PrepareFor bounds PREPARING. StartSlack and StopSlack are added to the
	// bounds of STARTING and STOPPING, which the agent enforces first.
	PrepareFor, StartSlack, StopSlack time.Duration
	// LeaveFor is how long an agent that was told to stop everything may take to end itself.
	LeaveFor time.Duration
	// LossGrace is how long a node may be without a session before its instances
	// count as lost: an agent that restarts opens its session anew.
	LossGrace time.Duration
	// LossWait is how long a lost node's instances wait for further losses before they
	// are replaced. 0 is a third of the TTL of the node's session, the interval of keep-alives.
	LossWait time.Duration
	// With at least MassLossNodes nodes and more than MassLossShare of all lost at
	// once, nothing is replaced. A MassLossNodes of 0 is 1.
	MassLossNodes int
	MassLossShare float64
	// RoomFor is how long room that was made is kept for whom it was made.
	RoomFor time.Duration
	// MoveFor bounds the time from the start of a moved instance's replacement until it is ready.
	MoveFor time.Duration
	// Batch bounds the starts, and the retirements, of one pass.
	Batch int
}

// DefaultLimits are the limits of the design.
func DefaultLimits() Limits {
	return Limits{
		CrashLimit: 3, CrashWindow: 5 * time.Minute,
		BackoffFirst: time.Second, BackoffMax: time.Minute, SetbackFor: 10 * time.Second,
		PauseFirst: time.Minute, PauseMax: time.Hour, Quiet: 10 * time.Minute,
		KeepFor: time.Hour, KeepRecords: 20, CrashFor: 30 * 24 * time.Hour, CrashRecords: 500, PlanFor: time.Hour,
		PrepareFor: 10 * time.Minute, StartSlack: 15 * time.Second, StopSlack: 30 * time.Second,
		LeaveFor: time.Minute, LossGrace: 500 * time.Millisecond,
		MassLossNodes: fleet.MassLossNodes, MassLossShare: fleet.MassLossShare, RoomFor: time.Minute, MoveFor: 5 * time.Minute, Batch: 1000,
	}
}

func (in Input) session(n fleet.NodeID) *fleet.NodeSession {
	if in.Session == nil {
		return nil
	}
	return in.Session(n)
}

func (in Input) lostSince(n fleet.NodeID) time.Time {
	if in.LostSince == nil {
		return time.Time{}
	}
	return in.LostSince(n)
}

func (in Input) ttl(n fleet.NodeID) time.Duration {
	if in.TTL == nil {
		return 0
	}
	return in.TTL(n)
}

// lossWait is LossWait for a node whose session has a TTL.
func (l Limits) lossWait(ttl time.Duration) time.Duration { return cmp.Or(l.LossWait, ttl/3) }

func (in Input) joined(n fleet.NodeID) int64 {
	if in.Joined == nil {
		return 0
	}
	return in.Joined(n)
}

func (in Input) released(n fleet.NodeID) bool { return in.Released != nil && in.Released(n) }

func (in Input) deleted(n fleet.NodeID) bool { return in.Deleted != nil && in.Deleted(n) }

func (in Input) plan(digest string) *fleet.Plan {
	if in.Plan == nil {
		return nil
	}
	return in.Plan(digest)
}

func (in Input) republished(plan string) bool { return in.Republished != nil && in.Republished(plan) }

func (in Input) eviction(id fleet.InstanceID) *fleet.Eviction {
	if in.Eviction == nil {
		return nil
	}
	return in.Eviction(id)
}

func (in Input) waits(id fleet.InstanceID) bool { return in.Waits != nil && in.Waits(id) }

func (in Input) outranks(id fleet.InstanceID, priority int) bool {
	return in.Outranks != nil && in.Outranks(id, priority)
}

func (in Input) players(i *fleet.Instance) int {
	if in.Players == nil {
		return 0
	}
	return in.Players(i)
}
