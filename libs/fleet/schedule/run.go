package schedule

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// State is the progress and the past of a schedule. Any gateway continues it. The gateway writes it.
type State struct {
	record.Rev
	Name string `json:"name"`
	// Handled is the last due time for which a run was begun, or left out.
	Handled time.Time `json:"handled,omitzero"`
	// Runs counts the runs.
	Runs int64 `json:"runs,omitempty"`
	// Current is the run in progress.
	Current *Run `json:"current,omitempty"`
	// Queued is the due time of the run that waits for Current.
	Queued time.Time `json:"queued,omitzero"`
	// History has the last MaxHistory finished runs, the newest first.
	History []Run `json:"history,omitempty"`
}

// Result is how a run ended.
type Result string

// The results.
const (
	Completed Result = "COMPLETED"
	// Failed means that the action failed on an instance.
	Failed Result = "FAILED"
	// Interrupted means that a gateway ended during the action, and it is unknown whether it took place.
	Interrupted Result = "INTERRUPTED"
	// Missed means that no gateway ran in time.
	Missed Result = "MISSED"
	// Skipped means that an earlier run was in progress.
	Skipped Result = "SKIPPED"
	// Canceled means that the schedule was turned off before the action.
	Canceled Result = "CANCELED"
)

// Results are all results.
func Results() []Result {
	return []Result{Completed, Failed, Interrupted, Missed, Skipped, Canceled}
}

// Run is one execution of a schedule.
type Run struct {
	Number int64 `json:"number"`
	// Due is the time of the cron expression; zero for a run that a user asked for.
	Due time.Time `json:"due,omitzero"`
	// At is when the action is due.
	At time.Time `json:"at"`
	// By is the user who asked for the run.
	By      string    `json:"by,omitempty"`
	Begun   time.Time `json:"begun"`
	Ended   time.Time `json:"ended,omitzero"`
	Result  Result    `json:"result,omitempty"`
	Message string    `json:"message,omitempty"`
	// Group, Instance and Node are those of the schedule when the run began.
	Group    fleet.GroupName `json:"group,omitempty"`
	Instance string          `json:"instance,omitempty"`
	Node     fleet.NodeID    `json:"node,omitempty"`
	// Steps are the warnings in order of time, and the action last.
	Steps []Step `json:"steps,omitempty"`
	// Holder is the gateway that acts on the targets in state TargetBegun.
	Holder Holder `json:"holder,omitzero"`
}

// Holder is a gateway in one of its sessions.
type Holder struct {
	Replica string `json:"replica"`
	// Epoch is the create-revision of its session.
	Epoch int64 `json:"epoch"`
}

// Step is a warning or the action of a run.
type Step struct {
	Action  Action `json:"action"`
	Command string `json:"command,omitempty"`
	Count   int    `json:"count,omitempty"`
	// Drain is set for the action Drain.
	Drain *DrainSettings `json:"drain,omitempty"`
	// Backup is set for the action Backup.
	Backup *BackupSettings `json:"backup,omitempty"`
	// BeforeSeconds is 0 for the action.
	BeforeSeconds int       `json:"beforeSeconds,omitempty"`
	At            time.Time `json:"at"`
	Begun         time.Time `json:"begun,omitzero"`
	Ended         time.Time `json:"ended,omitzero"`
	Message       string    `json:"message,omitempty"`
	Targets       []Target  `json:"targets,omitempty"`
	// Omitted counts targets that are no longer kept.
	Omitted int `json:"omitted,omitempty"`
}

// TargetState is the progress of a step on one instance.
type TargetState string

// The states.
const (
	TargetPending TargetState = "PENDING"
	// TargetBegun means that the holder acts, or may have acted.
	TargetBegun TargetState = "BEGUN"
	TargetDone  TargetState = "DONE"
	// TargetFailed has a message.
	TargetFailed TargetState = "FAILED"
	// TargetSkipped means that an earlier instance failed.
	TargetSkipped TargetState = "SKIPPED"
	// TargetUnknown means that the holder ended before it recorded the outcome.
	TargetUnknown TargetState = "UNKNOWN"
)

// Target is an instance that a step acts on. ID is empty if the step starts new instances, restarts a group
// by a deployment, or acts on a node.
type Target struct {
	ID   fleet.InstanceID `json:"id,omitempty"`
	Name string           `json:"name"`
	// Generation is the instance's when the step began. For a deployment it is the number of the group's
	// latest deployment then.
	Generation int64       `json:"generation,omitempty"`
	State      TargetState `json:"state"`
	Message    string      `json:"message,omitempty"`
}
