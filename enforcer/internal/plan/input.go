package plan

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Input is everything Group looks at. The records are never changed. A nil
// function knows nothing.
type Input struct {
	// Group is nil when the group's record is missing: then nothing is started,
	// stopped or deleted for it, and only what its instances' own intents say is carried out.
	Group *fleet.Group
	// Instances are all instances of the group, in any order.
	Instances []*fleet.Instance
	// CrashLoop is nil when the group has none.
	CrashLoop *fleet.CrashLoop
	// Session is a node's live session; nil when the node has none.
	Session func(fleet.NodeID) *fleet.NodeSession
	// Plan is a stored plan; nil when it is not stored.
	Plan func(digest string) *fleet.Plan
	// Players is the reported number of players of an instance; 0 when unknown.
	Players func(*fleet.Instance) int
	Limits  Limits
}

// Limits are the numbers behind the rules.
type Limits struct {
	// CrashLimit crashes within CrashWindow pause a group. CrashLimit is at least 1.
	CrashLimit  int
	CrashWindow time.Duration
	// BackoffFirst is the delay after the second crash of the window; it doubles up to BackoffMax.
	BackoffFirst, BackoffMax time.Duration
	// PauseFirst is the first pause; it doubles up to PauseMax.
	PauseFirst, PauseMax time.Duration
	// Quiet is the least time without a crash after which the pauses start anew.
	Quiet time.Duration
	// KeepFor is how long a finished instance's records are kept, KeepRecords how many per group.
	KeepFor     time.Duration
	KeepRecords int
	// PlanFor is how long an unreferenced plan is kept.
	PlanFor time.Duration
	// PrepareFor bounds PREPARING. StartSlack and StopSlack are added to the
	// bounds of STARTING and STOPPING, which the agent enforces first.
	PrepareFor, StartSlack, StopSlack time.Duration
	// LeaveFor is how long an agent that was told to stop everything may take to end itself.
	LeaveFor time.Duration
	// Batch bounds the starts, and the retirements, of one pass.
	Batch int
}

// DefaultLimits are the limits of the design.
func DefaultLimits() Limits {
	return Limits{
		CrashLimit: 3, CrashWindow: 5 * time.Minute,
		BackoffFirst: time.Second, BackoffMax: time.Minute,
		PauseFirst: time.Minute, PauseMax: time.Hour, Quiet: 10 * time.Minute,
		KeepFor: time.Hour, KeepRecords: 20, PlanFor: time.Hour,
		PrepareFor: 10 * time.Minute, StartSlack: 15 * time.Second, StopSlack: 30 * time.Second,
		LeaveFor: time.Minute, Batch: 1000,
	}
}

func (in Input) session(n fleet.NodeID) *fleet.NodeSession {
	if in.Session == nil {
		return nil
	}
	return in.Session(n)
}

func (in Input) plan(digest string) *fleet.Plan {
	if in.Plan == nil {
		return nil
	}
	return in.Plan(digest)
}

func (in Input) players(i *fleet.Instance) int {
	if in.Players == nil {
		return 0
	}
	return in.Players(i)
}
