package fleet

import (
	"encoding/json"
	"time"
)

// Group is a declared group. The gateway writes it; the enforcer removes it
// once it is marked Deleting and its instances are gone.
type Group struct {
	Rev
	Name GroupName `json:"name"`
	// Revision counts spec changes, from 1. Instances remember the revision they were made from.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Deleting marks the group for removal. A group that is merely missing orders nothing.
	Deleting bool `json:"deleting,omitempty"`
	// ScaledAt is the time of the last explicit scale: instances created at or
	// before it count as the enforcer's own, so the minimum trims them too. Zero when never scaled.
	ScaledAt time.Time `json:"scaledAt,omitzero"`
	// CrashesResetAt is when somebody last said that crashes before it do not count any
	// more: it ends a pause after them. Zero when nobody did.
	CrashesResetAt time.Time `json:"crashesResetAt,omitzero"`
	// ManagedBy is the source of templates that declares the group; "": it was made
	// through the API, and no source touches it.
	ManagedBy string `json:"managedBy,omitempty"`
	// Hidden is who is shown those of the spec's variables that not everybody is, as the
	// templates defined them when the group was written: what a template says no more
	// stays hidden.
	Hidden map[string]Visibility `json:"hidden,omitempty"`
	Spec   GroupSpec             `json:"spec"`
}

// GroupSpec is the union of what both HTTP dialects can say about a group.
// The zero value is not usable: start from DefaultSpec.
type GroupSpec struct {
	Software  Software    `json:"software"`
	Command   string      `json:"command,omitempty"` // a shell line; empty: a java line built from Software
	Runtime   RuntimeName `json:"runtime"`
	Resources Resources   `json:"resources"`
	// CPULimit is a hard quota in hundredths of a core. 0 means no quota.
	CPULimit  int       `json:"cpuLimit,omitempty"`
	Limits    Limits    `json:"limits,omitzero"`
	Confine   Confine   `json:"confine,omitzero"`
	Container Container `json:"container,omitzero"`
	RCON      RCON      `json:"rcon,omitzero"`

	Ports           PortRange   `json:"ports"`
	AdditionalPorts []NamedPort `json:"additionalPorts,omitempty"`
	// HostAddress is the advertised address, placeholders allowed. Empty means the node's own.
	HostAddress string `json:"hostAddress,omitempty"`

	Where Where `json:"where"`
	// Labels are the group's own, for quotas to select it by.
	Labels map[string]string `json:"labels,omitempty"`
	// Quota bounds what all instances of the group may hold at a time.
	Quota Budget `json:"quota,omitzero"`
	// Reserved is what other groups leave free for this one, less what it holds.
	Reserved Budget `json:"reserved,omitzero"`
	// Preempts allows instances of groups of clearly lower Priority to be stopped
	// when nothing else makes room.
	Preempts bool `json:"preempts,omitempty"`
	// Rebalance allows empty instances to be moved to even out the nodes.
	Rebalance bool    `json:"rebalance,omitempty"`
	Scaling   Scaling `json:"scaling"`
	Players   Players `json:"players"`

	Templates TemplateSelection `json:"templates"`
	// AutoLayers lays the templates that AutoLayers names below the chosen ones.
	AutoLayers bool `json:"autoLayers,omitempty"`
	// FileModifications are globs of files whose placeholders are replaced.
	FileModifications []string `json:"fileModifications,omitempty"`
	// MergeFiles are globs of files that are merged when several layers bring them; of
	// others the last layer's is taken whole.
	MergeFiles []string `json:"mergeFiles,omitempty"`
	// ConfigRules are patches applied after Composition.ConfigPatches, in their order.
	ConfigRules []ConfigPatch     `json:"configRules,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	// Variables are the group's placeholder values (variableValues, properties).
	Variables map[string]string `json:"variables,omitempty"`
	// Labels are the group names an instance belongs to (Universe's instanceGroups), %INSTANCE_GROUPS%.
	InstanceGroups []string `json:"instanceGroups,omitempty"`

	Static Static `json:"static"`
	Stop   Stop   `json:"stop"`
	// Readiness says when a started instance counts as ONLINE; without a type it follows
	// ReadinessInForce. Liveness is how an instance is watched from then on.
	Readiness Check    `json:"readiness"`
	Liveness  Liveness `json:"liveness,omitzero"`
	// StartupTimeoutSeconds bounds STARTING. 0 means no bound.
	StartupTimeoutSeconds int `json:"startupTimeoutSeconds,omitempty"`
	// MaxLifetimeSeconds recycles an instance after this time. 0 means never.
	MaxLifetimeSeconds int        `json:"maxLifetimeSeconds,omitempty"`
	OnCrash            OnCrash    `json:"onCrash"`
	OnNodeLoss         OnNodeLoss `json:"onNodeLoss"`
	// OnNodeReturn picks who stays when a lost node comes back with an instance
	// that was replaced meanwhile. Empty means keepOriginal.
	OnNodeReturn OnNodeReturn `json:"onNodeReturn,omitempty"`

	Maintenance Maintenance `json:"maintenance"`
	Motd        Motd        `json:"motd"`
	Composition Composition `json:"composition"`

	// Parent, DependsOn, StartupWeight, Priority and UpdateStrategy order and derive
	// groups. The higher the Priority, the earlier instances are placed.
	Parent         GroupName   `json:"parent,omitempty"`
	DependsOn      []GroupName `json:"dependsOn,omitempty"`
	StartupWeight  int         `json:"startupWeight,omitempty"`
	Priority       int         `json:"priority,omitempty"`
	UpdateStrategy string      `json:"updateStrategy,omitempty"`
}

// Software says what is run when no command is given.
type Software struct {
	Platform string `json:"platform,omitempty"`
	// Assumed is true where nobody named the platform: it is DefaultSpec's.
	Assumed         bool     `json:"assumed,omitempty"`
	PlatformVersion string   `json:"platformVersion,omitempty"`
	JarFile         string   `json:"jarFile,omitempty"`
	JVMArgs         []string `json:"jvmArgs,omitempty"`
}

// Scaling bounds the number of living instances.
type Scaling struct {
	Mode ScalingMode `json:"mode"`
	// Min is a floor, and the target for instances the enforcer started itself.
	Min int `json:"min"`
	// Max bounds living instances. 0 means unlimited.
	Max              int     `json:"max"`
	UpThreshold      float64 `json:"upThreshold,omitempty"`
	DownAfterSeconds int     `json:"downAfterSeconds,omitempty"`
	CooldownSeconds  int     `json:"cooldownSeconds,omitempty"`
	WarmPoolMinimum  int     `json:"warmPoolMinimum,omitempty"`
}

// ScalingMode is who decides about a group's count.
type ScalingMode string

// The scaling modes. ScalingManual is never scaled or healed by the enforcer.
const (
	ScalingDynamic ScalingMode = "DYNAMIC"
	ScalingStatic  ScalingMode = "STATIC"
	ScalingManual  ScalingMode = "MANUAL"
)

// Players is what concerns players of an instance.
type Players struct {
	Max               int       `json:"max,omitempty"`
	FallbackGroup     GroupName `json:"fallbackGroup,omitempty"`
	DefaultGroup      bool      `json:"defaultGroup,omitempty"`
	BedrockProxyGroup GroupName `json:"bedrockProxyGroup,omitempty"`
}

// Static marks groups with persistent data: the directory survives, an instance
// is restarted under the same id, and two copies never run at once.
type Static struct {
	Enabled        bool     `json:"enabled,omitempty"`
	InstanceNames  []string `json:"instanceNames,omitempty"`
	ProtectedPaths []string `json:"protectedPaths,omitempty"`
}

// Maintenance keeps the enforcer from starting instances of the group; running ones stay.
type Maintenance struct {
	On      bool     `json:"on,omitempty"`
	Message string   `json:"message,omitempty"`
	Bypass  []string `json:"bypass,omitempty"`
}

// Motd is what a proxy shows for the group.
type Motd struct {
	Lines           []string `json:"lines,omitempty"`
	Mode            string   `json:"mode,omitempty"`
	IntervalSeconds int      `json:"intervalSeconds,omitempty"`
}

// Composition is the policy for attached modules and extensions and the config patches.
type Composition struct {
	AttachedModules    []string `json:"attachedModules,omitempty"`
	EnabledModules     []string `json:"enabledModules,omitempty"`
	DisabledModules    []string `json:"disabledModules,omitempty"`
	AttachedExtensions []string `json:"attachedExtensions,omitempty"`
	EnabledExtensions  []string `json:"enabledExtensions,omitempty"`
	DisabledExtensions []string `json:"disabledExtensions,omitempty"`
	// ConfigPatches are values given by file and path: SET patches in short.
	ConfigPatches map[string]map[string]json.RawMessage `json:"configPatches,omitempty"`
}

// OnCrash is what follows an unexpected exit.
type OnCrash string

// The crash policies.
const (
	CrashReplace OnCrash = "replace" // the enforcer makes a new instance; static groups: a new generation of the same
	CrashRestart OnCrash = "restart" // the agent restarts it in place
	CrashStop    OnCrash = "stop"    // nothing is started
)

// OnNodeLoss is what follows the loss of an instance's node.
type OnNodeLoss string

// The node-loss policies. The empty value means wait for static groups, replace for others.
const (
	NodeLossReplace OnNodeLoss = "replace" // another takes its place; static groups: the same instance on another node
	NodeLossWait    OnNodeLoss = "wait"    // its place is kept until the node is back
	NodeLossStop    OnNodeLoss = "stop"    // it is not wanted any more; the minimum holds nevertheless
)

// OnNodeReturn is who stays when a lost node is back and both an instance and its
// replacement serve.
type OnNodeReturn string

// The node-return policies. An original that was interrupted meanwhile, or is not
// ready, gives way to its replacement under either.
const (
	KeepOriginal    OnNodeReturn = "keepOriginal"
	KeepReplacement OnNodeReturn = "keepReplacement"
)

// RuntimeName is how a command is run.
type RuntimeName string

// The runtimes Orrery knows. A node offers those it finds.
const (
	RuntimeProcess RuntimeName = "process"
	RuntimeTmux    RuntimeName = "tmux"
	RuntimeScreen  RuntimeName = "screen"
	RuntimeDocker  RuntimeName = "docker"
)

// RuntimeNames lists every known runtime.
var RuntimeNames = [...]RuntimeName{RuntimeProcess, RuntimeTmux, RuntimeScreen, RuntimeDocker}

// Stop is how an instance is asked to end: the line, then after Grace the
// signal, then after KillAfterSeconds a kill of everything it started.
type Stop struct {
	// Command is written to the console. Empty sends the signal at once.
	Command string `json:"command"`
	// GraceSeconds is the time the line has to work; 0 sends the signal at once, without it.
	GraceSeconds int `json:"graceSeconds"`
	// Signal is sent after the grace: TERM, INT, HUP, QUIT, USR1, USR2 or KILL.
	Signal string `json:"signal"`
}

// KillAfterSeconds is the time between a stop's signal and the kill of the whole tree.
const KillAfterSeconds = 10

// DefaultSpec is what a native create without any field declares.
func DefaultSpec() GroupSpec {
	return GroupSpec{
		Software:              Software{Platform: "PAPER", Assumed: true, JarFile: "server.jar"},
		Runtime:               RuntimeProcess,
		Resources:             Resources{MemoryMiB: 1024},
		Ports:                 PortRange{Start: 30000, End: 30100},
		Scaling:               Scaling{Mode: ScalingDynamic, Max: 10, UpThreshold: 0.8, DownAfterSeconds: 300, CooldownSeconds: 60},
		Players:               Players{Max: 100},
		Templates:             TemplateSelection{Override: true},
		AutoLayers:            true,
		FileModifications:     DefaultFileModifications(),
		MergeFiles:            DefaultMergeFiles(),
		Stop:                  Stop{Command: "stop", GraceSeconds: 30, Signal: "TERM"},
		StartupTimeoutSeconds: 120,
		OnCrash:               CrashReplace,
		Motd:                  Motd{Mode: "STATIC", IntervalSeconds: 30},
		UpdateStrategy:        "ROLLING",
	}
}

// With at least MassLossNodes nodes and more than MassLossShare of all lost at once,
// unless the enforcer is told other numbers, nothing is replaced: the cause is more
// likely the store's or the network's.
const (
	MassLossNodes = 5
	MassLossShare = 0.5
)

// KeepsLost reports whether an instance on a lost node still counts towards the
// group's number: it waits for its node, or is itself moved to another.
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

// NodeLossPolicy is the policy in force: the declared one, else wait for static groups and replace for others.
func (s GroupSpec) NodeLossPolicy() OnNodeLoss {
	switch {
	case s.OnNodeLoss != "":
		return s.OnNodeLoss
	case s.Static.Enabled:
		return NodeLossWait
	}
	return NodeLossReplace
}
