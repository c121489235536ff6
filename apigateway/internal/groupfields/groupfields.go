// Package groupfields holds the fields of a group that both dialects of the API have under the same
// names.
package groupfields

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
)

// Files are the fields that say how the files of an instance are made from its templates. A nil
// field was not given; a read sets every field.
type Files struct {
	// AutoLayers puts the templates base, base-<platform> and the group's own below the others.
	AutoLayers *bool `json:"autoLayers,omitempty"`
	// MergeFiles are globs of the files that are merged layer by layer. An empty list merges none.
	MergeFiles *[]string `json:"mergeFiles,omitempty"`
	// ConfigRules are patches. They are applied after configPatches.
	ConfigRules *[]configfile.ConfigPatch `json:"configRules,omitempty"`
}

// Apply sets the given fields in a spec.
func (f Files) Apply(s *fleet.GroupSpec) {
	Set(&s.AutoLayers, f.AutoLayers)
	if f.MergeFiles != nil {
		s.MergeFiles = append([]string(nil), *f.MergeFiles...)
	}
	if f.ConfigRules != nil {
		s.ConfigRules = append([]configfile.ConfigPatch(nil), *f.ConfigRules...)
		for i, r := range s.ConfigRules {
			s.ConfigRules[i].Op = configfile.PatchOp(strings.ToUpper(string(r.Op)))
		}
	}
}

// FilesOf returns all of these fields of a spec.
func FilesOf(s fleet.GroupSpec) Files {
	return Files{
		AutoLayers:  &s.AutoLayers,
		MergeFiles:  new(append([]string{}, s.MergeFiles...)),
		ConfigRules: new(append([]configfile.ConfigPatch{}, s.ConfigRules...)),
	}
}

// Shared are the other fields that both dialects have under the same names, with the same values.
// A nil field was not given; a read sets every field.
type Shared struct {
	Parent                *fleet.GroupName                       `json:"parent,omitempty"`
	PlatformVersion       *string                                `json:"platformVersion,omitempty"`
	JarFile               *string                                `json:"jarFile,omitempty"`
	JVMArgs               *[]string                              `json:"jvmArgs,omitempty"`
	MaxInstances          *int                                   `json:"maxInstances,omitempty"`
	ScaleUpThreshold      *float64                               `json:"scaleUpThreshold,omitempty"`
	ScaleDownAfterSeconds *int                                   `json:"scaleDownAfterSeconds,omitempty"`
	ScaleCooldownSeconds  *int                                   `json:"scaleCooldownSeconds,omitempty"`
	ScaleBufferSlots      *int                                   `json:"scaleBufferSlots,omitempty"`
	ScaleBufferPercent    *int                                   `json:"scaleBufferPercent,omitempty"`
	ScalingPolicies       *[]scalepolicy.Policy                  `json:"scalingPolicies,omitempty"`
	ScalingCombine        *scalepolicy.Combine                   `json:"scalingCombine,omitempty"`
	WarmPoolMinPrepared   *int                                   `json:"warmPoolMinPrepared,omitempty"`
	MaxPlayers            *int                                   `json:"maxPlayers,omitempty"`
	FallbackGroup         *fleet.GroupName                       `json:"fallbackGroup,omitempty"`
	DefaultGroup          *bool                                  `json:"defaultGroup,omitempty"`
	BedrockProxyGroup     *fleet.GroupName                       `json:"bedrockProxyGroup,omitempty"`
	CPULimit              *int                                   `json:"cpuLimit,omitempty"`
	DiskReservationMb     *int                                   `json:"diskReservationMb,omitempty"`
	NodeAffinity          *[]string                              `json:"nodeAffinity,omitempty"`
	NodeAntiAffinity      *[]string                              `json:"nodeAntiAffinity,omitempty"`
	SpreadConstraint      *string                                `json:"spreadConstraint,omitempty"`
	SpreadMaxSkew         *int                                   `json:"spreadMaxSkew,omitempty"`
	MaxPerNode            *int                                   `json:"maxPerNode,omitempty"`
	ExclusiveNode         *bool                                  `json:"exclusiveNode,omitempty"`
	Preempts              *bool                                  `json:"preempts,omitempty"`
	Rebalance             *bool                                  `json:"rebalance,omitempty"`
	StaticInstanceNames   *[]string                              `json:"staticInstanceNames,omitempty"`
	ProtectedPaths        *[]string                              `json:"protectedPaths,omitempty"`
	StopCommand           *string                                `json:"stopCommand,omitempty"`
	ShutdownGraceSeconds  *int                                   `json:"shutdownGraceSeconds,omitempty"`
	OnCrash               *fleet.OnCrash                         `json:"onCrash,omitempty"`
	OnNodeLoss            *fleet.OnNodeLoss                      `json:"onNodeLoss,omitempty"`
	OnNodeReturn          *fleet.OnNodeReturn                    `json:"onNodeReturn,omitempty"`
	Maintenance           *bool                                  `json:"maintenance,omitempty"`
	MaintenanceMessage    *string                                `json:"maintenanceMessage,omitempty"`
	MaintenanceBypass     *[]string                              `json:"maintenanceBypass,omitempty"`
	Motds                 *[]string                              `json:"motds,omitempty"`
	MotdIntervalSeconds   *int                                   `json:"motdIntervalSeconds,omitempty"`
	DependsOn             *[]fleet.GroupName                     `json:"dependsOn,omitempty"`
	StartupWeight         *int                                   `json:"startupWeight,omitempty"`
	Priority              *int                                   `json:"priority,omitempty"`
	AttachedModules       *[]string                              `json:"attachedModules,omitempty"`
	EnabledModules        *[]string                              `json:"enabledModules,omitempty"`
	DisabledModules       *[]string                              `json:"disabledModules,omitempty"`
	AttachedExtensions    *[]string                              `json:"attachedExtensions,omitempty"`
	EnabledExtensions     *[]string                              `json:"enabledExtensions,omitempty"`
	DisabledExtensions    *[]string                              `json:"disabledExtensions,omitempty"`
	ConfigPatches         *map[string]map[string]json.RawMessage `json:"configPatches,omitempty"`
}

// Apply sets the given fields in a spec.
func (f Shared) Apply(s *fleet.GroupSpec) {
	Set(&s.Parent, f.Parent)
	Set(&s.Software.PlatformVersion, f.PlatformVersion)
	Set(&s.Software.JarFile, f.JarFile)
	Set(&s.Software.JVMArgs, f.JVMArgs)
	Set(&s.Scaling.Max, f.MaxInstances)
	Set(&s.Scaling.UpThreshold, f.ScaleUpThreshold)
	Set(&s.Scaling.DownAfterSeconds, f.ScaleDownAfterSeconds)
	Set(&s.Scaling.CooldownSeconds, f.ScaleCooldownSeconds)
	Set(&s.Scaling.BufferSlots, f.ScaleBufferSlots)
	Set(&s.Scaling.BufferPercent, f.ScaleBufferPercent)
	f.scalingPolicies(&s.Scaling)
	Set(&s.Scaling.WarmPoolMinimum, f.WarmPoolMinPrepared)
	Set(&s.Players.Max, f.MaxPlayers)
	Set(&s.Players.FallbackGroup, f.FallbackGroup)
	Set(&s.Players.DefaultGroup, f.DefaultGroup)
	Set(&s.Players.BedrockProxyGroup, f.BedrockProxyGroup)
	Set(&s.CPULimit, f.CPULimit)
	Set(&s.Resources.DiskMiB, f.DiskReservationMb)
	Set(&s.Where.Affinity, f.NodeAffinity)
	Set(&s.Where.AntiAffinity, f.NodeAntiAffinity)
	Set(&s.Where.Spread, f.SpreadConstraint)
	Set(&s.Where.MaxSkew, f.SpreadMaxSkew)
	Set(&s.Where.MaxPerNode, f.MaxPerNode)
	Set(&s.Where.Alone, f.ExclusiveNode)
	Set(&s.Preempts, f.Preempts)
	Set(&s.Rebalance, f.Rebalance)
	Set(&s.Static.InstanceNames, f.StaticInstanceNames)
	Set(&s.Static.ProtectedPaths, f.ProtectedPaths)
	Set(&s.Stop.Command, f.StopCommand)
	Set(&s.Stop.GraceSeconds, f.ShutdownGraceSeconds)
	Set(&s.OnCrash, f.OnCrash)
	Set(&s.OnNodeLoss, f.OnNodeLoss)
	Set(&s.OnNodeReturn, f.OnNodeReturn)
	Set(&s.Maintenance.On, f.Maintenance)
	Set(&s.Maintenance.Message, f.MaintenanceMessage)
	Set(&s.Maintenance.Bypass, f.MaintenanceBypass)
	Set(&s.Motd.Lines, f.Motds)
	Set(&s.Motd.IntervalSeconds, f.MotdIntervalSeconds)
	Set(&s.DependsOn, f.DependsOn)
	Set(&s.StartupWeight, f.StartupWeight)
	Set(&s.Priority, f.Priority)
	Set(&s.Composition.AttachedModules, f.AttachedModules)
	Set(&s.Composition.EnabledModules, f.EnabledModules)
	Set(&s.Composition.DisabledModules, f.DisabledModules)
	Set(&s.Composition.AttachedExtensions, f.AttachedExtensions)
	Set(&s.Composition.EnabledExtensions, f.EnabledExtensions)
	Set(&s.Composition.DisabledExtensions, f.DisabledExtensions)
	Set(&s.Composition.ConfigPatches, f.ConfigPatches)
}

// scalingPolicies sets the policies with their defaults. The combination max is the default, so it is
// not stored.
func (f Shared) scalingPolicies(s *fleet.Scaling) {
	if f.ScalingPolicies != nil {
		s.Policies = nil
		for _, p := range *f.ScalingPolicies {
			s.Policies = append(s.Policies, p.WithDefaults())
		}
	}
	if Set(&s.Combine, f.ScalingCombine); s.Combine == scalepolicy.Max {
		s.Combine = ""
	}
}

// SharedOf returns all of these fields of a spec. Empty lists are [], not null.
func SharedOf(s fleet.GroupSpec) Shared {
	patches := s.Composition.ConfigPatches
	if patches == nil {
		patches = map[string]map[string]json.RawMessage{}
	}
	return Shared{
		Parent: &s.Parent, PlatformVersion: &s.Software.PlatformVersion, JarFile: &s.Software.JarFile,
		JVMArgs: new(append([]string{}, s.Software.JVMArgs...)), MaxInstances: &s.Scaling.Max, ScaleUpThreshold: &s.Scaling.UpThreshold,
		ScaleDownAfterSeconds: &s.Scaling.DownAfterSeconds, ScaleCooldownSeconds: &s.Scaling.CooldownSeconds, WarmPoolMinPrepared: &s.Scaling.WarmPoolMinimum,
		ScaleBufferSlots: &s.Scaling.BufferSlots, ScaleBufferPercent: &s.Scaling.BufferPercent,
		ScalingPolicies: new(append([]scalepolicy.Policy{}, s.Scaling.Policies...)), ScalingCombine: new(cmp.Or(s.Scaling.Combine, scalepolicy.Max)),
		MaxPlayers: &s.Players.Max, FallbackGroup: &s.Players.FallbackGroup, DefaultGroup: &s.Players.DefaultGroup,
		BedrockProxyGroup: &s.Players.BedrockProxyGroup, CPULimit: &s.CPULimit, DiskReservationMb: &s.Resources.DiskMiB,
		NodeAffinity: new(append([]string{}, s.Where.Affinity...)), NodeAntiAffinity: new(append([]string{}, s.Where.AntiAffinity...)), SpreadConstraint: &s.Where.Spread,
		SpreadMaxSkew: &s.Where.MaxSkew, MaxPerNode: &s.Where.MaxPerNode, ExclusiveNode: &s.Where.Alone,
		Preempts: &s.Preempts, Rebalance: &s.Rebalance, StaticInstanceNames: new(append([]string{}, s.Static.InstanceNames...)),
		ProtectedPaths: new(append([]string{}, s.Static.ProtectedPaths...)), StopCommand: &s.Stop.Command, ShutdownGraceSeconds: &s.Stop.GraceSeconds,
		OnCrash: &s.OnCrash, OnNodeLoss: &s.OnNodeLoss, OnNodeReturn: &s.OnNodeReturn,
		Maintenance: &s.Maintenance.On, MaintenanceMessage: &s.Maintenance.Message, MaintenanceBypass: new(append([]string{}, s.Maintenance.Bypass...)),
		Motds: new(append([]string{}, s.Motd.Lines...)), MotdIntervalSeconds: &s.Motd.IntervalSeconds, DependsOn: new(append([]fleet.GroupName{}, s.DependsOn...)),
		StartupWeight: &s.StartupWeight, Priority: &s.Priority, AttachedModules: new(append([]string{}, s.Composition.AttachedModules...)),
		EnabledModules: new(append([]string{}, s.Composition.EnabledModules...)), DisabledModules: new(append([]string{}, s.Composition.DisabledModules...)), AttachedExtensions: new(append([]string{}, s.Composition.AttachedExtensions...)),
		EnabledExtensions: new(append([]string{}, s.Composition.EnabledExtensions...)), DisabledExtensions: new(append([]string{}, s.Composition.DisabledExtensions...)), ConfigPatches: &patches,
	}
}

// Process are the fields that say how an instance runs: its health checks, its limits and what it
// is isolated from. A nil field was not given; a read sets every field.
type Process struct {
	Readiness *fleet.Check    `json:"readiness,omitempty"`
	Liveness  *fleet.Liveness `json:"liveness,omitempty"`
	Limits    *Limits         `json:"limits,omitempty"`
	Confine   *Confine        `json:"confine,omitempty"`
	Container *Container      `json:"container,omitempty"`
	RCON      *RCON           `json:"rcon,omitempty"`
	Startup   *int            `json:"startupTimeoutSeconds,omitempty"`
	Lifetime  *int            `json:"maxLifetimeSeconds,omitempty"`
	SleepWhen *int            `json:"sleepAfterEmptySeconds,omitempty"`
	WakeOn    *sleep.WakeOn   `json:"wakeOn,omitempty"`
	SleepMotd *string         `json:"sleepMotd,omitempty"`
}

// Limits are the limits other than memory and CPU. 0 means no limit.
type Limits struct {
	Processes int `json:"processes"`
	IOWeight  int `json:"ioWeight"`
	DiskMb    int `json:"diskMb"`
	LogMb     int `json:"logMb"`
}

// Confine is a isolation.Confine, with every field in its JSON.
type Confine struct {
	User              string `json:"user"`
	NoNewPrivileges   bool   `json:"noNewPrivileges"`
	PrivateTmp        bool   `json:"privateTmp"`
	ReadOnlyTemplates bool   `json:"readOnlyTemplates"`
}

// Container is a isolation.Container, with every field in its JSON.
type Container struct {
	Image     string   `json:"image"`
	User      string   `json:"user"`
	Network   string   `json:"network"`
	Volumes   []string `json:"volumes"`
	Directory string   `json:"directory"`
}

// RCON is a fleet.RCON, with every field in its JSON.
type RCON struct {
	Port     string `json:"port"`
	Password string `json:"password"`
}

// Apply sets the given fields in a spec.
func (f Process) Apply(s *fleet.GroupSpec) {
	if f.Readiness != nil {
		s.Readiness = *f.Readiness
		s.Readiness.Type = cmp.Or(s.Readiness.Type, fleet.CheckNone)
	}
	if Set(&s.Liveness, f.Liveness); s.Liveness.Type == fleet.CheckNone {
		s.Liveness.Type = "" // not given means the same
	}
	if l := f.Limits; l != nil {
		s.Limits = isolation.Limits{Processes: l.Processes, IOWeight: l.IOWeight, DiskMiB: l.DiskMb, LogMiB: l.LogMb}
	}
	Set(&s.Confine, (*isolation.Confine)(f.Confine))
	if c := f.Container; c != nil {
		s.Container = isolation.Container(*c)
		if len(c.Volumes) == 0 {
			s.Container.Volumes = nil // not given means the same
		}
	}
	Set(&s.RCON, (*fleet.RCON)(f.RCON))
	Set(&s.StartupTimeoutSeconds, f.Startup)
	Set(&s.MaxLifetimeSeconds, f.Lifetime)
	Set(&s.Sleep.AfterEmptySeconds, f.SleepWhen)
	Set(&s.Sleep.WakeOn, f.WakeOn)
	Set(&s.Sleep.Motd, f.SleepMotd)
	s.Sleep = s.Sleep.Stored()
}

// ProcessOf returns all of these fields of a spec. Readiness is the check in force.
func ProcessOf(s fleet.GroupSpec) Process {
	s.Readiness = s.ReadinessInForce()
	s.Liveness.Type = cmp.Or(s.Liveness.Type, fleet.CheckNone)
	s.Container.Volumes = append([]string{}, s.Container.Volumes...)
	return Process{
		Readiness: &s.Readiness, Liveness: &s.Liveness,
		Limits:  &Limits{Processes: s.Limits.Processes, IOWeight: s.Limits.IOWeight, DiskMb: s.Limits.DiskMiB, LogMb: s.Limits.LogMiB},
		Confine: (*Confine)(&s.Confine), Container: (*Container)(&s.Container), RCON: (*RCON)(&s.RCON),
		Startup: &s.StartupTimeoutSeconds, Lifetime: &s.MaxLifetimeSeconds,
		SleepWhen: &s.Sleep.AfterEmptySeconds, WakeOn: new(s.Sleep.Wakes()), SleepMotd: new(s.Sleep.Text()),
	}
}

// Sent returns the names of the fields that a body has. Fields that are null count as absent.
func Sent(body any) (map[string]bool, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "groupfields.Sent", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, errs.WrapAs(errs.Internal, "groupfields.Sent", err)
	}
	out := make(map[string]bool, len(all))
	for name, value := range all {
		out[name] = string(value) != "null"
	}
	return out, nil
}

// Set assigns a field if it was given.
func Set[T any](field *T, given *T) {
	if given != nil {
		*field = *given
	}
}
