package plan

import "github.com/orreryhq/orrery/libs/fleet"

// Kind is what an action does.
type Kind string

// The kinds of actions.
const (
	// Create makes a new instance of Origin; Replaces may name the crashed one it is made for.
	Create Kind = "create"
	// Again makes the next generation of Instance, which has ended, is lost, or waits for a node.
	Again Kind = "again"
	// Stop makes Instance's intent say stopped and, when it is placed, orders it in the same step.
	Stop Kind = "stop"
	// Order tells the node of Instance what to do with it.
	Order Kind = "order"
	// Lose says that Instance's node is lost.
	Lose Kind = "lose"
	// Bury ends Instance on paper: its lost node was deleted.
	Bury Kind = "bury"
	// Settle removes the eviction of Instance: it is done, or not possible any more.
	Settle Kind = "settle"
	// Retire removes all records of Instance.
	Retire Kind = "retire"
	// DeleteGroup removes the group's own records.
	DeleteGroup Kind = "delete_group"
	// SetCrashLoop writes Loop.
	SetCrashLoop Kind = "set_crash_loop"
	// ClearCrashLoop removes the group's crash loop.
	ClearCrashLoop Kind = "clear_crash_loop"
	// CollectPlan removes the stored plan Digest.
	CollectPlan Kind = "collect_plan"
)

// Kinds lists every kind, for tables and metrics.
var Kinds = [...]Kind{Create, Again, Stop, Order, Lose, Bury, Settle, Retire, DeleteGroup, SetCrashLoop, ClearCrashLoop, CollectPlan}

// Action is one thing to do, and why.
type Action struct {
	Kind   Kind
	Reason fleet.Reason
	// Message is the reason as a sentence about this case.
	Message string
	// By is the user behind it; empty for the enforcer.
	By string
	// Instance is whom it concerns; nil for actions on a group, a plan or somebody new.
	Instance *fleet.Instance
	// Origin is a new instance's.
	Origin fleet.Origin
	// Replaces is the crashed, lost or moved instance a new one is made for; nil when none.
	Replaces *fleet.Instance
	// Restores is the original that stays when a Stop ends the one that took its place: from
	// then on it counts as never replaced; nil when there is none.
	Restores *fleet.Instance
	// Stays is set when a Settle ends a move for which somebody was made in vain: Instance
	// counts as never replaced.
	Stays bool
	// Order is what a Stop or Order tells the node; empty when the instance holds none.
	Order fleet.OrderAction
	// Loop is the record SetCrashLoop writes.
	Loop fleet.CrashLoop
	// Digest is the plan CollectPlan removes, Group the one it was made for.
	Digest string
	Group  fleet.GroupName
}
