package universe

import (
	"encoding/json"

	"github.com/orreryhq/orrery/apigateway/internal/groupfields"
	"github.com/orreryhq/orrery/libs/fleet"
)

// nativeFields are group fields that are not part of the dialect, with the names of Orrery's own API
// v1. They are optional in a configuration; absent fields keep their values.
type nativeFields struct {
	Parent          *fleet.GroupName `json:"parent"`
	Platform        *string          `json:"platform"`
	PlatformVersion *string          `json:"platformVersion"`
	JarFile         *string          `json:"jarFile"`
	JVMArgs         *[]string        `json:"jvmArgs"`
	CPULimit        *int             `json:"cpuLimit"`
	DiskReservation *int             `json:"diskReservationMb"`

	ScalingMode           *fleet.ScalingMode `json:"scalingMode"`
	MaxInstances          *int               `json:"maxInstances"`
	ScaleUpThreshold      *float64           `json:"scaleUpThreshold"`
	ScaleDownAfterSeconds *int               `json:"scaleDownAfterSeconds"`
	ScaleCooldownSeconds  *int               `json:"scaleCooldownSeconds"`
	WarmPoolMinPrepared   *int               `json:"warmPoolMinPrepared"`

	MaxPlayers        *int             `json:"maxPlayers"`
	FallbackGroup     *fleet.GroupName `json:"fallbackGroup"`
	DefaultGroup      *bool            `json:"defaultGroup"`
	BedrockProxyGroup *fleet.GroupName `json:"bedrockProxyGroup"`

	NodeAffinity     *[]string `json:"nodeAffinity"`
	NodeAntiAffinity *[]string `json:"nodeAntiAffinity"`
	SpreadConstraint *string   `json:"spreadConstraint"`
	placingFields

	StaticInstanceNames *[]string `json:"staticInstanceNames"`
	ProtectedPaths      *[]string `json:"protectedPaths"`

	StopCommand          *string             `json:"stopCommand"`
	ShutdownGraceSeconds *int                `json:"shutdownGraceSeconds"`
	StopSignal           *string             `json:"stopSignal"`
	OnCrash              *fleet.OnCrash      `json:"onCrash"`
	OnNodeLoss           *fleet.OnNodeLoss   `json:"onNodeLoss"`
	OnNodeReturn         *fleet.OnNodeReturn `json:"onNodeReturn"`
	groupfields.Process
	groupfields.Files

	Maintenance        *bool     `json:"maintenance"`
	MaintenanceMessage *string   `json:"maintenanceMessage"`
	MaintenanceBypass  *[]string `json:"maintenanceBypass"`

	Motds               *[]string `json:"motds"`
	MotdMode            *string   `json:"motdMode"`
	MotdIntervalSeconds *int      `json:"motdIntervalSeconds"`

	DependsOn      *[]fleet.GroupName `json:"dependsOn"`
	StartupWeight  *int               `json:"startupWeight"`
	Priority       *int               `json:"priority"`
	UpdateStrategy *string            `json:"updateStrategy"`

	AttachedModules    *[]string                              `json:"attachedModules"`
	EnabledModules     *[]string                              `json:"enabledModules"`
	DisabledModules    *[]string                              `json:"disabledModules"`
	AttachedExtensions *[]string                              `json:"attachedExtensions"`
	EnabledExtensions  *[]string                              `json:"enabledExtensions"`
	DisabledExtensions *[]string                              `json:"disabledExtensions"`
	ConfigPatches      *map[string]map[string]json.RawMessage `json:"configPatches"`
}

// onto sets the fields that the request has.
func (n nativeFields) onto(s *fleet.GroupSpec) {
	set(&s.Parent, n.Parent)
	if n.Platform != nil {
		s.Software.Platform, s.Software.Assumed = *n.Platform, false
	}
	set(&s.Software.PlatformVersion, n.PlatformVersion)
	set(&s.Software.JarFile, n.JarFile)
	set(&s.Software.JVMArgs, n.JVMArgs)
	set(&s.CPULimit, n.CPULimit)
	set(&s.Resources.DiskMiB, n.DiskReservation)
	n.scaling(&s.Scaling)
	set(&s.Players.Max, n.MaxPlayers)
	set(&s.Players.FallbackGroup, n.FallbackGroup)
	set(&s.Players.DefaultGroup, n.DefaultGroup)
	set(&s.Players.BedrockProxyGroup, n.BedrockProxyGroup)
	set(&s.Where.Affinity, n.NodeAffinity)
	set(&s.Where.AntiAffinity, n.NodeAntiAffinity)
	set(&s.Where.Spread, n.SpreadConstraint)
	n.placingFields.onto(s)
	set(&s.Static.InstanceNames, n.StaticInstanceNames)
	set(&s.Static.ProtectedPaths, n.ProtectedPaths)
	n.life(s)
	set(&s.Maintenance.On, n.Maintenance)
	set(&s.Maintenance.Message, n.MaintenanceMessage)
	set(&s.Maintenance.Bypass, n.MaintenanceBypass)
	set(&s.Motd.Lines, n.Motds)
	set(&s.Motd.Mode, n.MotdMode)
	set(&s.Motd.IntervalSeconds, n.MotdIntervalSeconds)
	set(&s.DependsOn, n.DependsOn)
	set(&s.StartupWeight, n.StartupWeight)
	set(&s.Priority, n.Priority)
	set(&s.UpdateStrategy, n.UpdateStrategy)
	n.composition(&s.Composition)
	n.Files.Apply(s)
}

func (n nativeFields) scaling(s *fleet.Scaling) {
	set(&s.Mode, n.ScalingMode)
	set(&s.Max, n.MaxInstances)
	set(&s.UpThreshold, n.ScaleUpThreshold)
	set(&s.DownAfterSeconds, n.ScaleDownAfterSeconds)
	set(&s.CooldownSeconds, n.ScaleCooldownSeconds)
	set(&s.WarmPoolMinimum, n.WarmPoolMinPrepared)
}

func (n nativeFields) life(s *fleet.GroupSpec) {
	set(&s.Stop.Command, n.StopCommand)
	set(&s.Stop.GraceSeconds, n.ShutdownGraceSeconds)
	set(&s.Stop.Signal, n.StopSignal)
	n.Process.Apply(s)
	set(&s.OnCrash, n.OnCrash)
	set(&s.OnNodeLoss, n.OnNodeLoss)
	set(&s.OnNodeReturn, n.OnNodeReturn)
}

func (n nativeFields) composition(c *fleet.Composition) {
	set(&c.AttachedModules, n.AttachedModules)
	set(&c.EnabledModules, n.EnabledModules)
	set(&c.DisabledModules, n.DisabledModules)
	set(&c.AttachedExtensions, n.AttachedExtensions)
	set(&c.EnabledExtensions, n.EnabledExtensions)
	set(&c.DisabledExtensions, n.DisabledExtensions)
	set(&c.ConfigPatches, n.ConfigPatches)
}

func set[T any](field *T, given *T) {
	if given != nil {
		*field = *given
	}
}

// placingFields are the native fields for placement and for resource limits of a group.
type placingFields struct {
	NodePreferences  *[]fleet.Preference          `json:"nodePreferences"`
	SpreadMaxSkew    *int                         `json:"spreadMaxSkew"`
	MaxPerNode       *int                         `json:"maxPerNode"`
	ExclusiveNode    *bool                        `json:"exclusiveNode"`
	PlacementProfile *fleet.Profile               `json:"placementProfile"`
	PlacementWeights *map[fleet.ScorePart]float64 `json:"placementWeights"`
	Labels           *map[string]string           `json:"labels"`
	Quota            *budget                      `json:"quota"`
	Reserved         *budget                      `json:"reserved"`
	Preempts         *bool                        `json:"preempts"`
	Rebalance        *bool                        `json:"rebalance"`
}

// budget is a quantity of resources. Missing fields count as 0.
type budget struct {
	MemoryMb  int `json:"memoryMb"`
	CPU       int `json:"cpu"`
	Instances int `json:"instances"`
}

func (f placingFields) onto(s *fleet.GroupSpec) {
	set(&s.Where.Prefer, f.NodePreferences)
	set(&s.Where.MaxSkew, f.SpreadMaxSkew)
	set(&s.Where.MaxPerNode, f.MaxPerNode)
	set(&s.Where.Alone, f.ExclusiveNode)
	if set(&s.Where.Profile, f.PlacementProfile); s.Where.Profile == fleet.ProfileBalanced {
		s.Where.Profile = "" // the store leaves out the default
	}
	set(&s.Where.Weights, f.PlacementWeights)
	set(&s.Labels, f.Labels)
	setBudget(&s.Quota, f.Quota)
	setBudget(&s.Reserved, f.Reserved)
	set(&s.Preempts, f.Preempts)
	set(&s.Rebalance, f.Rebalance)
}

func setBudget(field *fleet.Budget, given *budget) {
	if given != nil {
		*field = fleet.Budget{MemoryMiB: given.MemoryMb, CPU: given.CPU, Instances: given.Instances}
	}
}
