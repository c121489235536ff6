// Package schedule has the records of scheduled actions and of overlays. A schedule runs an action on
// the instances of a group at times that a cron expression gives. An overlay changes fields of groups
// during time windows.
package schedule

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Limits of schedules and their runs.
const (
	// MaxSchedules bounds the schedules of a cluster.
	MaxSchedules = 500
	// MaxWarnings bounds the warnings of a schedule.
	MaxWarnings = 20
	// MaxBefore bounds how long before the action a warning is sent, in seconds.
	MaxBefore = 24 * 3600
	// MaxJitter bounds the jitter, in seconds.
	MaxJitter = 3600
	// MaxCommand bounds a command, in characters.
	MaxCommand = 1000
	// MaxCount bounds the instances that one run starts.
	MaxCount = 50
	// MaxHistory is how many finished runs are kept for each schedule.
	MaxHistory = 20
	// MaxHistoryBytes is how much of them is kept. The last run is kept in any case.
	MaxHistoryBytes = 256 << 10
	// MaxTargets bounds the instances that one step acts on.
	MaxTargets = 1000
	// MaxBackups bounds the backups of an instance that a schedule keeps.
	MaxBackups = 100
	// MaxBackupLines bounds the console lines before a backup, and those after it.
	MaxBackupLines = 10
	// MaxKept is how many instances are kept of each finished step.
	MaxKept = 50
)

// Action is what a schedule does.
type Action string

// The actions.
const (
	// Command writes a line to the console of each running instance.
	Command Action = "command"
	// Start starts a stopped instance. Of a group it starts Count instances.
	Start Action = "start"
	// Stop stops each instance. The group's minimum still applies.
	Stop Action = "stop"
	// Restart restarts an instance. It restarts several of a group by a rolling deployment.
	Restart Action = "restart"
	// Drain and Undrain concern a node.
	Drain   Action = "drain"
	Undrain Action = "undrain"
	// Backup archives the directory of each static instance, running or not.
	Backup Action = "backup"
)

// BackupSettings are those of the action Backup.
type BackupSettings struct {
	// Keep is how many backups of each instance remain; 0 keeps all.
	Keep int `json:"keep,omitempty"`
	// Before are console lines that make a running server write its data and stop changing it. Until is a
	// text in a line that it then prints. After are lines that end this.
	Before []string `json:"before,omitempty"`
	Until  string   `json:"until,omitempty"`
	After  []string `json:"after,omitempty"`
}

// Check adds everything that is wrong with the settings. Names of fields begin with prefix.
func (b BackupSettings) Check(p *validate.Problems, prefix string) {
	p.Check(b.Keep >= 0 && b.Keep <= MaxBackups, prefix+"keep", "must be between 0 and %d, is %d", MaxBackups, b.Keep)
	for _, lines := range []struct {
		field string
		all   []string
	}{{"before", b.Before}, {"after", b.After}} {
		p.Check(len(lines.all) <= MaxBackupLines, prefix+lines.field, "must have at most %d lines, has %d", MaxBackupLines, len(lines.all))
		for n, line := range lines.all[:min(len(lines.all), MaxBackupLines)] {
			checkCommand(p, fmt.Sprintf("%s%s[%d]", prefix, lines.field, n), line)
		}
	}
	p.Lines(prefix+"until", b.Until, validate.MaxShown)
	p.Check(len(b.After) == 0 || len(b.Before) > 0, prefix+"after", "has a meaning only with lines in before: it ends what they begin")
	p.Check(b.Until == "" || len(b.Before) > 0, prefix+"until", "has a meaning only with lines in before: the server prints it because of them")
}

// Equal reports whether two settings are the same.
func (b BackupSettings) Equal(c BackupSettings) bool {
	return b.Keep == c.Keep && b.Until == c.Until && slices.Equal(b.Before, c.Before) && slices.Equal(b.After, c.After)
}

// DrainSettings are those of the action Drain.
type DrainSettings struct {
	TimeoutSeconds int    `json:"timeoutSeconds"`
	Shutdown       bool   `json:"shutdown,omitempty"`
	KickMessage    string `json:"kickMessage,omitempty"`
	MoveStatic     bool   `json:"moveStatic,omitempty"`
}

// Overlap says what happens to a run that is due while another run is in progress.
type Overlap string

// The rules.
const (
	// Skip leaves it out.
	Skip Overlap = "skip"
	// Queue begins it when the other run has ended. At most one run waits.
	Queue Overlap = "queue"
)

// Warning is a command that is sent before the action.
type Warning struct {
	// BeforeSeconds is how long before the action it is sent.
	BeforeSeconds int    `json:"beforeSeconds"`
	Command       string `json:"command"`
}

// Schedule is an action at the times of a cron expression. The gateway writes it.
type Schedule struct {
	record.Rev
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Group, Instance or Node is what the action concerns. Exactly one is set. Instance is a name.
	Group    fleet.GroupName `json:"group,omitempty"`
	Instance string          `json:"instance,omitempty"`
	Node     fleet.NodeID    `json:"node,omitempty"`
	Action   Action          `json:"action"`
	// Drain is set for the action Drain only.
	Drain *DrainSettings `json:"drain,omitempty"`
	// Backup is set for the action Backup only.
	Backup *BackupSettings `json:"backup,omitempty"`
	// Command is set for the action Command only.
	Command string `json:"command,omitempty"`
	// Count is how many instances of a group the action Start starts. It is 0 for others.
	Count    int       `json:"count,omitempty"`
	Cron     string    `json:"cron"`
	Timezone string    `json:"timezone,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"`
	// JitterSeconds delays each run by up to this time, by the same for every gateway.
	JitterSeconds int     `json:"jitterSeconds,omitempty"`
	Overlap       Overlap `json:"overlap"`
	Enabled       bool    `json:"enabled"`
	// Since is when the times or Enabled changed last. Earlier due times are not due.
	Since time.Time `json:"since"`
	By    string    `json:"by,omitempty"`
	At    time.Time `json:"at"`
}

// Validate returns everything that is wrong, each as an Invalid error that names the field. It does not
// check Cron and Timezone.
func (s Schedule) Validate() []error {
	var p validate.Problems
	p.Check(validate.ValidSegment(s.Name), "name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period, not %q", validate.Clip(s.Name))
	p.Lines("description", s.Description, validate.MaxDescription)
	p.Check(s.Group == "" || s.Instance == "", "instance", "must not be set together with group: send one of them")
	p.Check(s.Node == "" || s.Group == "" && s.Instance == "", "node", "must not be set together with group or instance: send one of them")
	p.Check(s.Group != "" || s.Instance != "" || s.Node != "", "group", "is missing: name a group, an instance in the field instance, or a node in the field node")
	if s.Instance != "" {
		_, _, ok := fleet.ParseInstanceName(s.Instance)
		p.Check(ok || validate.InstanceNamePattern.MatchString(s.Instance), "instance", "must be the name of an instance, such as lobby-1, not %q", validate.Clip(s.Instance))
	}
	p.Check(validate.OneOf(s.Action, Command, Start, Stop, Restart, Backup, Drain, Undrain), "action", "must be command, start, stop, restart, backup, drain or undrain, not %q", validate.Clip(string(s.Action)))
	s.validateNode(&p)
	p.Check(s.Backup == nil || s.Action == Backup, "backup", "has a meaning only with the action backup: remove it")
	p.Check(s.Backup != nil || s.Action != Backup, "backup", "is missing")
	if s.Action == Backup && s.Backup != nil {
		s.Backup.Check(&p, "backup.")
	}
	if s.Action == Command {
		checkCommand(&p, "command", s.Command)
	} else {
		p.Check(s.Command == "", "command", "has a meaning only with the action command: remove it, or add it to warnings")
	}
	if s.Action == Start && s.Group != "" {
		p.Check(s.Count >= 1 && s.Count <= MaxCount, "count", "must be between 1 and %d, is %d", MaxCount, s.Count)
	} else {
		p.Check(s.Count == 0, "count", "has a meaning only with the action start and a group: remove it")
	}
	p.Check(len(s.Warnings) <= MaxWarnings, "warnings", "must have at most %d entries, has %d", MaxWarnings, len(s.Warnings))
	if len(s.Warnings) <= MaxWarnings {
		for n, w := range s.Warnings {
			field := fmt.Sprintf("warnings[%d]", n)
			p.Check(w.BeforeSeconds >= 1 && w.BeforeSeconds <= MaxBefore, field+".beforeSeconds", "must be between 1 and %d, is %d", MaxBefore, w.BeforeSeconds)
			same := slices.IndexFunc(s.Warnings, func(o Warning) bool { return o.BeforeSeconds == w.BeforeSeconds })
			p.Check(same == n, field+".beforeSeconds", "is the same as in warnings[%d]: each warning needs a time of its own", same)
			checkCommand(&p, field+".command", w.Command)
		}
	}
	p.Check(s.JitterSeconds >= 0 && s.JitterSeconds <= MaxJitter, "jitterSeconds", "must be between 0 and %d, is %d", MaxJitter, s.JitterSeconds)
	p.Check(validate.OneOf(s.Overlap, Skip, Queue), "overlap", "must be skip or queue, not %q", validate.Clip(string(s.Overlap)))
	return p.List
}

// validateNode checks what only schedules of nodes have.
func (s Schedule) validateNode(p *validate.Problems) {
	onNode := s.Action == Drain || s.Action == Undrain
	p.Check(!onNode || s.Node != "" || s.Group == "" && s.Instance == "", "action", "concerns a node: name it in the field node, without group and instance")
	p.Check(onNode || s.Node == "", "action", "must be drain or undrain for a node")
	if s.Action != Drain || s.Drain == nil {
		p.Check(s.Drain == nil, "drain", "has a meaning only with the action drain: remove it")
		return
	}
	d := *s.Drain
	p.Check(d.TimeoutSeconds >= 1 && d.TimeoutSeconds <= fleet.MaxDrainSeconds, "drain.timeout", "must be between 1 and %d seconds, is %d", fleet.MaxDrainSeconds, d.TimeoutSeconds)
	p.Word("drain.kickMessage", d.KickMessage, fleet.MaxKickMessage)
}

func checkCommand(p *validate.Problems, field, command string) {
	p.Check(command != "", field, "is missing: give the line to write to the console")
	p.Check(len([]rune(command)) <= MaxCommand && !validate.HasControl(command) && validate.ValidValue(command), field, "must be one line of at most %d characters", MaxCommand)
}

// Lead is how long before the action a run begins: with its first warning.
func (s Schedule) Lead() time.Duration {
	var lead int
	for _, w := range s.Warnings {
		lead = max(lead, w.BeforeSeconds)
	}
	return time.Duration(lead) * time.Second
}

// Jitter is the delay of the run that is due at a time. All gateways compute the same.
func (s Schedule) Jitter(due time.Time) time.Duration {
	if s.JitterSeconds <= 0 {
		return 0
	}
	hash := record.Hash(fmt.Sprint(s.Name, " ", due.Unix()))
	return time.Duration(int(hash%uint32(s.JitterSeconds+1))) * time.Second
}

// Target says what the schedule acts on.
func (s Schedule) Target() string {
	if s.Instance != "" {
		return "instance " + s.Instance
	}
	if s.Node != "" {
		return "node " + string(s.Node)
	}
	return "group " + string(s.Group)
}
