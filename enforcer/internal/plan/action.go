package plan

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// Kind is the kind of an action.
type Kind string

// Kinds of actions.
const (
	// Create makes a new instance with Origin. It may be a replacement for Replaces.
	Create Kind = "create"
	// Restart starts the next generation of Instance, which has ended, is lost, or waits for
	// a node.
	Restart Kind = "again"
	// Stop sets the intent of Instance to stopped. If it is placed, the same transaction
	// orders the stop.
	Stop Kind = "stop"
	// Sleep orders Instance to sleep.
	Sleep Kind = "sleep"
	// Wake starts the next generation of Instance, which sleeps, with the same plan.
	Wake Kind = "wake"
	// Retire sets the retirement of Instance, or ends it if Retirement is nil.
	Retire Kind = "retire"
	// Admit lets Instance take players; see fleet.Intent.Standby.
	Admit Kind = "admit"
	// Promote makes Instance, which is warm, an ordinary one.
	Promote Kind = "promote"
	// SetMove writes Move, and Intent unless it is nil.
	SetMove Kind = "set_move"
	// Order writes an order for the node of Instance.
	Order Kind = "order"
	// ReportLost reports Instance as lost with its node.
	ReportLost Kind = "lose"
	// EndDeleted reports Instance as ended, because its lost node was deleted.
	EndDeleted Kind = "bury"
	// RemoveEviction removes the eviction of Instance, which is done or no longer possible.
	RemoveEviction Kind = "settle"
	// DeleteInstance deletes all records of Instance.
	DeleteInstance Kind = "delete_instance"
	// DeleteGroup deletes the group's own records.
	DeleteGroup Kind = "delete_group"
	// SetCrashLoop writes Loop.
	SetCrashLoop Kind = "set_crash_loop"
	// ClearCrashLoop deletes the group's crash loop.
	ClearCrashLoop Kind = "clear_crash_loop"
	// SetProgress writes Progress. Its zero times are set by the commit.
	SetProgress Kind = "set_progress"
	// DeleteDeployment deletes the records of the deployment Progress.Number.
	DeleteDeployment Kind = "delete_deployment"
	// SetScaling writes Scaling, with the time of the commit as At.
	SetScaling Kind = "set_scaling"
	// ClearScaling deletes the group's latest scaling decision.
	ClearScaling Kind = "clear_scaling"
	// DeletePlan deletes the stored plan Digest.
	DeletePlan Kind = "collect_plan"
	// Number gives the group a number; see cluster.Tenant.
	Number Kind = "number"
)

// Kinds lists every kind, for tables and metrics.
var Kinds = [...]Kind{Create, Restart, Stop, Sleep, Wake, Retire, Admit, Promote, SetMove, Order, ReportLost, EndDeleted, RemoveEviction, DeleteInstance, DeleteGroup, SetCrashLoop, ClearCrashLoop, SetScaling, ClearScaling, SetProgress, DeleteDeployment, DeletePlan, Number}

// Action is one change to make and its reason.
type Action struct {
	Kind   Kind
	Reason fleet.Reason
	// Message explains the reason for this case in a sentence.
	Message string
	// By is the user who caused it; empty for the enforcer.
	By string
	// Instance is the instance it applies to; nil for a group, a plan or a new instance.
	Instance *fleet.Instance
	// Warm is set when Create makes a warm instance.
	Warm bool
	// Origin is the origin of a new instance.
	Origin fleet.Origin
	// Replaces is the crashed, lost or moved instance that a new one replaces, or nil.
	Replaces *fleet.Instance
	// Restores is the original that stays when a Stop ends its replacement. It then counts
	// as never replaced. It may be nil.
	Restores *fleet.Instance
	// Standby is set when a new instance takes no players until it is admitted.
	Standby bool
	// WhileEmpty is set when a Stop or Sleep may be committed only while the number of the instance's players
	// has not changed.
	WhileEmpty bool
	// Again is set when a Stop also requests the next generation of Instance.
	Again bool
	// Retirement is what Retire sets, with the time of the commit as At.
	Retirement *fleet.Retirement
	// Move is the record that SetMove writes, with the time of the commit if its step changes. Intent
	// is the intent that it writes with it, or nil.
	Move   *move.Move
	Intent *fleet.Intent
	// Stays is set when a RemoveEviction ends a move whose replacement failed. Instance then counts
	// as never replaced.
	Stays bool
	// Order is the order of a Stop, Sleep or Order action; empty when the instance is on no node.
	Order fleet.OrderAction
	// Loop is the record that SetCrashLoop writes.
	Loop crashloop.Loop
	// Progress is the record that SetProgress writes.
	Progress deployment.Progress
	// Scaling is the record that SetScaling writes.
	Scaling *scaling.Decision
	// Digest is the plan that DeletePlan deletes; Group is the group it was made for.
	Digest string
	Group  fleet.GroupName
}
