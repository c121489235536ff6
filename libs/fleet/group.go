package fleet

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Group is a declared group. The gateway writes it. The enforcer removes it once it is marked
// Deleting and its instances are gone.
type Group struct {
	record.Rev
	Name GroupName `json:"name"`
	// Revision counts spec changes from 1. Instances store the revision they were made from.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Deleting marks the group for removal. A missing group record removes nothing.
	Deleting bool `json:"deleting,omitempty"`
	// ScaledAt is the time of the last explicit scale. Instances created at or before it count as
	// created by the enforcer, so scaling down may stop them. Zero means never scaled.
	ScaledAt time.Time `json:"scaledAt,omitzero"`
	// CrashesResetAt is when a user last reset the group's crashes. Crashes before it no longer
	// count, and a pause because of them ends. Zero means never.
	CrashesResetAt time.Time `json:"crashesResetAt,omitzero"`
	// ManagedBy is the template source that declares the group. Empty means it was created through
	// the API, and no source changes it.
	ManagedBy string `json:"managedBy,omitempty"`
	// Hidden is the visibility of each variable that is not visible to all, as the templates
	// defined it when the group was written. Variables stay hidden even if a template no longer
	// defines them.
	Hidden map[string]content.Visibility `json:"hidden,omitempty"`
	// Pinned are the template versions that a rollback restored. Instances use them instead of the
	// current ones until the next deployment.
	Pinned []content.TemplateHead `json:"pinned,omitempty"`
	Spec   GroupSpec              `json:"spec"`
}

// GroupSpec contains every field of a group that either HTTP API can set. The zero value is not
// usable; start from DefaultSpec.
type GroupSpec struct {
	Software  Software    `json:"software"`
	Command   string      `json:"command,omitempty"` // a shell command; empty means a java command built from Software
	Runtime   RuntimeName `json:"runtime"`
	Resources Resources   `json:"resources"`
	// CPULimit is a hard limit in hundredths of a core. 0 means no limit.
	CPULimit  int                 `json:"cpuLimit,omitempty"`
	Limits    isolation.Limits    `json:"limits,omitzero"`
	Confine   isolation.Confine   `json:"confine,omitzero"`
	Container isolation.Container `json:"container,omitzero"`
	RCON      RCON                `json:"rcon,omitzero"`

	Ports           PortRange   `json:"ports"`
	AdditionalPorts []NamedPort `json:"additionalPorts,omitempty"`
	// HostAddress is the advertised address. Placeholders are allowed. Empty means the node's own.
	HostAddress string `json:"hostAddress,omitempty"`

	Where Where `json:"where"`
	// Labels are the group's labels. Quotas select groups by them.
	Labels map[string]string `json:"labels,omitempty"`
	// Quota limits what all instances of the group together may use.
	Quota Budget `json:"quota,omitzero"`
	// Reserved is capacity kept free for this group, less what it already uses.
	Reserved Budget `json:"reserved,omitzero"`
	// Preempts allows the scheduler to stop instances of groups with clearly lower Priority when
	// there is no other room.
	Preempts bool `json:"preempts,omitempty"`
	// Rebalance allows empty instances to be moved to even out the load of the nodes.
	Rebalance bool    `json:"rebalance,omitempty"`
	Scaling   Scaling `json:"scaling"`
	Players   Players `json:"players"`

	Templates content.TemplateSelection `json:"templates"`
	// AutoLayers adds the automatic templates below the selected ones; see the function
	// AutoLayers.
	AutoLayers bool `json:"autoLayers,omitempty"`
	// FileModifications are globs of files in which placeholders are replaced.
	FileModifications []string `json:"fileModifications,omitempty"`
	// MergeFiles are globs of files that are merged if several layers contain them. For other
	// files the last layer wins.
	MergeFiles []string `json:"mergeFiles,omitempty"`
	// ConfigRules are patches, applied in order after Composition.ConfigPatches.
	ConfigRules []configfile.ConfigPatch `json:"configRules,omitempty"`
	Env         map[string]string        `json:"env,omitempty"`
	// Variables are the group's placeholder values (variableValues or properties in the APIs).
	Variables map[string]string `json:"variables,omitempty"`
	// InstanceGroups are the names an instance belongs to (Universe's instanceGroups), the value
	// of %INSTANCE_GROUPS%.
	InstanceGroups []string `json:"instanceGroups,omitempty"`

	Static Static `json:"static"`
	Stop   Stop   `json:"stop"`
	// Readiness says when a started instance counts as ONLINE. Without a type, ReadinessInForce
	// decides. Liveness monitors the instance from then on.
	Readiness Check    `json:"readiness"`
	Liveness  Liveness `json:"liveness,omitzero"`
	// StartupTimeoutSeconds bounds the state STARTING. 0 means no limit.
	StartupTimeoutSeconds int `json:"startupTimeoutSeconds,omitempty"`
	// MaxLifetimeSeconds replaces an instance after this time. 0 means never.
	MaxLifetimeSeconds int        `json:"maxLifetimeSeconds,omitempty"`
	OnCrash            OnCrash    `json:"onCrash"`
	OnNodeLoss         OnNodeLoss `json:"onNodeLoss"`
	// OnNodeReturn selects which copy stays when a lost node comes back with an instance that was
	// replaced meanwhile. Empty means keepOriginal.
	OnNodeReturn OnNodeReturn `json:"onNodeReturn,omitempty"`

	Sleep       sleep.Rules `json:"sleep,omitzero"`
	Maintenance Maintenance `json:"maintenance"`
	Motd        Motd        `json:"motd"`
	Composition Composition `json:"composition"`

	// Parent is the group to inherit from. Nothing starts while no instance of a group in DependsOn
	// is ONLINE. Instances of higher Priority are placed first, then those of higher StartupWeight.
	Parent        GroupName   `json:"parent,omitempty"`
	DependsOn     []GroupName `json:"dependsOn,omitempty"`
	StartupWeight int         `json:"startupWeight,omitempty"`
	Priority      int         `json:"priority,omitempty"`
	// UpdateStrategy is the strategy of deployments that name no other.
	UpdateStrategy string `json:"updateStrategy,omitempty"`

	// Explicit are the inheritable single values that a user set, by their names in /api/v1, sorted.
	// The others are inherited if the group has a parent that sets them. Nil means that all are set,
	// as in records of older versions.
	Explicit []string `json:"explicit,omitzero"`
}

// Sets reports whether the group itself sets a single value, given its name in /api/v1.
func (s *GroupSpec) Sets(name string) bool {
	return s.Explicit == nil || slices.Contains(s.Explicit, name)
}

// Software selects the program if the group has no command.
type Software struct {
	Platform string `json:"platform,omitempty"`
	// Assumed is true if no client named the platform, so it is the one of DefaultSpec.
	Assumed         bool     `json:"assumed,omitempty"`
	PlatformVersion string   `json:"platformVersion,omitempty"`
	JarFile         string   `json:"jarFile,omitempty"`
	JVMArgs         []string `json:"jvmArgs,omitempty"`
}

// Scaling bounds the number of living instances, and says when the enforcer changes it because of
// the load; see package scaling.
type Scaling struct {
	Mode ScalingMode `json:"mode"`
	// Min is the lower limit, and the target number of instances that the enforcer starts if the load
	// needs no more.
	Min int `json:"min"`
	// Max is the upper limit. 0 means unlimited; then the load starts no instances.
	Max int `json:"max"`
	// UpThreshold is the share of occupied slots from which instances are added, above 0, at most 1.
	UpThreshold float64 `json:"upThreshold,omitempty"`
	// DownAfterSeconds is how long an instance has no players before it may be stopped because the
	// load needs it no longer.
	DownAfterSeconds int `json:"downAfterSeconds,omitempty"`
	// CooldownSeconds is the time between two changes because of the load.
	CooldownSeconds int `json:"cooldownSeconds,omitempty"`
	// BufferSlots is how many slots are kept free, and BufferPercent how many percent of all slots.
	// 0 means none.
	BufferSlots   int `json:"bufferSlots,omitempty"`
	BufferPercent int `json:"bufferPercent,omitempty"`
	// WarmPoolMinimum is how many instances are kept running that take no players until the group needs
	// them, in addition to Max.
	WarmPoolMinimum int `json:"warmPoolMinimum,omitempty"`
	// Policies say how many instances the group shall have, besides the load. Combine says how; ""
	// means scalepolicy.Max.
	Policies []scalepolicy.Policy `json:"policies,omitempty"`
	Combine  scalepolicy.Combine  `json:"combine,omitempty"`
}

// ScalingMode says who decides the number of instances.
type ScalingMode string

// The scaling modes. With ScalingStatic the load changes nothing. With ScalingManual the enforcer
// neither scales nor replaces instances.
const (
	ScalingDynamic ScalingMode = "DYNAMIC"
	ScalingStatic  ScalingMode = "STATIC"
	ScalingManual  ScalingMode = "MANUAL"
)

// Players groups the settings about players.
type Players struct {
	Max               int       `json:"max,omitempty"`
	FallbackGroup     GroupName `json:"fallbackGroup,omitempty"`
	DefaultGroup      bool      `json:"defaultGroup,omitempty"`
	BedrockProxyGroup GroupName `json:"bedrockProxyGroup,omitempty"`
}

// Static marks groups with persistent data: the directory survives, an instance restarts under the
// same ID, and two copies never run at once.
type Static struct {
	Enabled bool `json:"enabled,omitempty"`
	// InstanceNames are the names of the instances, in order. They count only if Enabled.
	InstanceNames  []string `json:"instanceNames,omitempty"`
	ProtectedPaths []string `json:"protectedPaths,omitempty"`
}

// Maintenance keeps the enforcer from starting instances of the group. Running instances stay.
type Maintenance struct {
	On      bool     `json:"on,omitempty"`
	Message string   `json:"message,omitempty"`
	Bypass  []string `json:"bypass,omitempty"`
}

// Validate returns everything that is wrong as Invalid errors that name the given fields.
func (m Maintenance) Validate(message, bypass string) []error {
	var p validate.Problems
	p.Lines(message, m.Message, validate.MaxShown)
	p.Each(bypass, m.Bypass, p.Word, validate.MaxWord)
	return p.List
}

// Under returns the maintenance in force for a group whose own maintenance is m, under that of all
// groups. The group's message wins. If both are on, only players in both lists may join.
func (m Maintenance) Under(all Maintenance) Maintenance {
	if !all.On {
		return m
	} else if !m.On {
		return all
	}
	m.Message = cmp.Or(m.Message, all.Message)
	m.Bypass = slices.DeleteFunc(slices.Clone(m.Bypass), func(name string) bool { return !slices.Contains(all.Bypass, name) })
	return m
}

// Motd is the message of the day a proxy shows for the group.
type Motd struct {
	Lines           []string `json:"lines,omitempty"`
	Mode            string   `json:"mode,omitempty"`
	IntervalSeconds int      `json:"intervalSeconds,omitempty"`
}

// Composition selects attached modules and extensions, and contains the config patches.
type Composition struct {
	AttachedModules    []string `json:"attachedModules,omitempty"`
	EnabledModules     []string `json:"enabledModules,omitempty"`
	DisabledModules    []string `json:"disabledModules,omitempty"`
	AttachedExtensions []string `json:"attachedExtensions,omitempty"`
	EnabledExtensions  []string `json:"enabledExtensions,omitempty"`
	DisabledExtensions []string `json:"disabledExtensions,omitempty"`
	// ConfigPatches maps file and path to a value: the short form of SET patches.
	ConfigPatches map[string]map[string]json.RawMessage `json:"configPatches,omitempty"`
}

// OnCrash is the action after an unexpected exit.
type OnCrash string

// The crash policies.
const (
	CrashReplace OnCrash = "replace" // the enforcer creates a new instance, or for static groups a new generation of the same
	CrashRestart OnCrash = "restart" // the agent restarts it in place
	CrashStop    OnCrash = "stop"    // nothing starts
)

// OnNodeLoss is the action when the node of an instance is lost.
type OnNodeLoss string

// The node-loss policies. The empty value means wait for static groups and replace for others.
const (
	NodeLossReplace OnNodeLoss = "replace" // another instance replaces it, or for static groups the same instance moves to another node
	NodeLossWait    OnNodeLoss = "wait"    // its place is kept until the node is back
	NodeLossStop    OnNodeLoss = "stop"    // it is given up; the group's minimum still applies
)

// OnNodeReturn selects which copy stays when a lost node is back and both an instance and its
// replacement are running.
type OnNodeReturn string

// The node-return policies. With either, the replacement stays if the original was interrupted or
// is not ready.
const (
	KeepOriginal    OnNodeReturn = "keepOriginal"
	KeepReplacement OnNodeReturn = "keepReplacement"
)

// RuntimeName names the way a command is run.
type RuntimeName string

// The runtimes of Orrery. A node offers those it finds on its host.
const (
	RuntimeProcess RuntimeName = "process"
	RuntimeTmux    RuntimeName = "tmux"
	RuntimeScreen  RuntimeName = "screen"
	RuntimeDocker  RuntimeName = "docker"
)

// RuntimeNames lists every known runtime.
var RuntimeNames = [...]RuntimeName{RuntimeProcess, RuntimeTmux, RuntimeScreen, RuntimeDocker}

// Stop describes how an instance is stopped: first the command, after GraceSeconds the signal, and
// after KillAfterSeconds a kill of the whole process tree.
type Stop struct {
	// Command is written to the console. If it is empty, the signal is sent at once.
	Command string `json:"command"`
	// GraceSeconds is the time between command and signal. 0 sends the signal at once, without the
	// command.
	GraceSeconds int `json:"graceSeconds"`
	// Signal is sent after the grace: TERM, INT, HUP, QUIT, USR1, USR2 or KILL.
	Signal string `json:"signal"`
}

// KillAfterSeconds is the time between the signal of a stop and the kill of the process tree.
const KillAfterSeconds = 10

// DefaultSpec is the spec of a group created through the native API without any field.
func DefaultSpec() GroupSpec {
	return GroupSpec{
		Software:              Software{Platform: "PAPER", Assumed: true, JarFile: "server.jar"},
		Runtime:               RuntimeProcess,
		Resources:             Resources{MemoryMiB: 1024},
		Ports:                 PortRange{Start: 30000, End: 30100},
		Scaling:               Scaling{Mode: ScalingDynamic, Max: 10, UpThreshold: 0.8, DownAfterSeconds: 300, CooldownSeconds: 60},
		Players:               Players{Max: 100},
		Templates:             content.TemplateSelection{Override: true},
		AutoLayers:            true,
		FileModifications:     configfile.DefaultFileModifications(),
		MergeFiles:            configfile.DefaultMergeFiles(),
		Stop:                  Stop{Command: "stop", GraceSeconds: 30, Signal: "TERM"},
		StartupTimeoutSeconds: 120,
		OnCrash:               CrashReplace,
		Motd:                  Motd{Mode: "STATIC", IntervalSeconds: 30},
		UpdateStrategy:        "ROLLING",
	}
}

// If at least MassLossNodes nodes and more than MassLossShare of all nodes are lost at once,
// nothing is replaced: the likely cause is the store or the network. The enforcer's settings can
// change these defaults.
const (
	MassLossNodes = 5
	MassLossShare = 0.5
)

// KeepsLost reports whether an instance on a lost node still counts towards the group's number,
// because it waits for its node or moves to another.
func (s GroupSpec) KeepsLost() bool {
	switch s.NodeLossPolicy() {
	case NodeLossWait:
		return true
	case NodeLossReplace:
		return s.Static.Enabled
	case NodeLossStop:
	}
	return false
}

// NodeLossPolicy returns the effective policy: the declared one, or else wait for static groups
// and replace for others.
func (s GroupSpec) NodeLossPolicy() OnNodeLoss {
	switch {
	case s.OnNodeLoss != "":
		return s.OnNodeLoss
	case s.Static.Enabled:
		return NodeLossWait
	}
	return NodeLossReplace
}

// RoutesPlayers reports whether a platform is known to be a proxy.
func RoutesPlayers(platform string) bool {
	return slices.Contains([]string{"VELOCITY", "BUNGEECORD", "WATERFALL", "GEYSER"}, platform)
}
