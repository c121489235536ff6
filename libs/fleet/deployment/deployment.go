// Package deployment has the records of deployments, which replace the instances of a group by new
// ones, and the rules that gateway and enforcer share: which instances a deployment replaces and in
// which order.
package deployment

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// MaxHistory is how many deployments of a group are kept.
const MaxHistory = 20

// Deployment is the request to replace the instances of a group, and what users decided about it
// since. The gateway writes it, the enforcer removes the oldest. See Progress for its state.
type Deployment struct {
	record.Rev
	Group fleet.GroupName `json:"group"`
	// Number counts the deployments of the group from 1. Each instance stores the number of the
	// latest one at its start.
	Number   int64    `json:"number"`
	Trigger  Trigger  `json:"trigger"`
	Strategy Strategy `json:"strategy"`
	Options  Options  `json:"options"`
	// GroupRevision is the revision of Spec. Spec and Templates are the group's own spec and the
	// template versions at the time of the request; a rollback restores them.
	GroupRevision int64                  `json:"groupRevision"`
	Spec          fleet.GroupSpec        `json:"spec"`
	Templates     []content.TemplateHead `json:"templates,omitempty"`
	// RollbackOf is the deployment that a rollback undoes, Restores the one whose spec and
	// templates it restores. Both are 0 for others.
	RollbackOf int64     `json:"rollbackOf,omitempty"`
	Restores   int64     `json:"restores,omitempty"`
	CreatedAt  time.Time `json:"createdAt"`
	By         string    `json:"by,omitempty"`
	// Paused holds further replacements. Promoted ends the first phase without its gate.
	Paused   bool `json:"paused,omitempty"`
	Promoted bool `json:"promoted,omitempty"`
	// Canceled and RolledBack end the deployment.
	Canceled   bool `json:"canceled,omitempty"`
	RolledBack bool `json:"rolledBack,omitempty"`
}

// Progress is how far a deployment has come. The enforcer writes it. A deployment without one has
// not begun.
type Progress struct {
	record.Rev
	Group  fleet.GroupName `json:"group"`
	Number int64           `json:"number"`
	State  State           `json:"state"`
	// Total is the number of instances that it replaces, Updated how many of them are gone. Updated
	// never decreases.
	Total   int `json:"total"`
	Updated int `json:"updated"`
	// Ready is the highest number of healthy instances that were up to date at one time.
	Ready int `json:"ready"`
	// Failed is the number of crashes of instances that are up to date.
	Failed int `json:"failed,omitempty"`
	// Promoted is true once the first phase of a CANARY or BLUE_GREEN deployment is over.
	Promoted bool `json:"promoted,omitempty"`
	// Reason and Message explain PAUSED and the final states.
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ChangedAt is when it last came forward. FinishedAt is zero before the end.
	ChangedAt  time.Time `json:"changedAt"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
}

// Trigger says why a deployment was requested.
type Trigger string

// The triggers.
const (
	TriggerManual   Trigger = "manual"
	TriggerRestart  Trigger = "rolling_restart"
	TriggerRollback Trigger = "rollback"
)

// Strategy says how many instances a deployment replaces before it checks them.
type Strategy string

// The strategies. Canary first replaces a few instances, and the others once those are healthy.
// BlueGreen starts replacements for all instances. These take no players until all of them are
// healthy, and then all originals retire together.
const (
	Rolling   Strategy = "ROLLING"
	Canary    Strategy = "CANARY"
	BlueGreen Strategy = "BLUE_GREEN"
)

// Strategies lists the strategies for messages.
const Strategies = "ROLLING, CANARY or BLUE_GREEN"

// Gated reports whether a deployment with this strategy has a first phase that a health gate or a
// user ends.
func (s Strategy) Gated() bool { return s == Canary || s == BlueGreen }

// State is the state of a deployment.
type State string

// The states. All but the first two are final.
const (
	InProgress State = "IN_PROGRESS"
	Paused     State = "PAUSED"
	Completed  State = "COMPLETED"
	Failed     State = "FAILED"
	RolledBack State = "ROLLED_BACK"
	Canceled   State = "CANCELLED" // spelled as existing clients expect
)

// States lists the states for messages.
const States = "IN_PROGRESS, PAUSED, COMPLETED, FAILED, ROLLED_BACK or CANCELLED"

// Valid reports whether the state is one of States.
func (s State) Valid() bool {
	switch s {
	case InProgress, Paused, Completed, Failed, RolledBack, Canceled:
		return true
	}
	return false
}

// Final reports whether a deployment in this state replaces nothing more.
func (s State) Final() bool { return s != "" && s != InProgress && s != Paused }

// Reason is why a deployment is in its state.
type Reason string

// The reasons.
const (
	ReasonRequested   Reason = "Requested"   // a user paused, canceled or rolled back the deployment
	ReasonMaintenance Reason = "Maintenance" // the group is in maintenance
	ReasonCrashes     Reason = "Crashes"     // the new instances crashed
	ReasonTimeout     Reason = "Timeout"     // the new instances were not ready in time
	ReasonReplaced    Reason = "Replaced"    // all instances are up to date
	ReasonSuperseded  Reason = "Superseded"  // a later deployment began
)

// Joined is a deployment with its progress, nil before it began.
type Joined struct {
	*Deployment
	Progress *Progress
}

// State returns the state of the deployment.
func (j Joined) State() State {
	if j.Progress == nil {
		return InProgress
	}
	return j.Progress.State
}

// Active reports whether the deployment still replaces instances, or will once it is resumed.
func (j Joined) Active() bool {
	return !j.State().Final() && !j.Canceled && !j.RolledBack
}
