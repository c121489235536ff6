package rest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/composing"
	"github.com/orreryhq/orrery/apigateway/internal/running"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// groupFields are what may be written of a group. Absent (nil) fields take their
// default; of a read all are there.
type groupFields struct {
	Parent          *fleet.GroupName `json:"parent,omitempty"`
	Platform        *string          `json:"platform,omitempty"`
	PlatformVersion *string          `json:"platformVersion,omitempty"`
	JarFile         *string          `json:"jarFile,omitempty"`
	JVMArgs         *[]string        `json:"jvmArgs,omitempty"`
	Command         *string          `json:"command,omitempty"`
	Runtime         *string          `json:"runtime,omitempty"`

	ScalingMode           *string  `json:"scalingMode,omitempty"`
	MinInstances          *int     `json:"minInstances,omitempty"`
	MaxInstances          *int     `json:"maxInstances,omitempty"`
	ScaleUpThreshold      *float64 `json:"scaleUpThreshold,omitempty"`
	ScaleDownAfterSeconds *int     `json:"scaleDownAfterSeconds,omitempty"`
	ScaleCooldownSeconds  *int     `json:"scaleCooldownSeconds,omitempty"`
	WarmPoolMinPrepared   *int     `json:"warmPoolMinPrepared,omitempty"`

	MaxPlayers        *int             `json:"maxPlayers,omitempty"`
	FallbackGroup     *fleet.GroupName `json:"fallbackGroup,omitempty"`
	DefaultGroup      *bool            `json:"defaultGroup,omitempty"`
	BedrockProxyGroup *fleet.GroupName `json:"bedrockProxyGroup,omitempty"`

	MemoryMb          *int     `json:"memoryMb,omitempty"`
	CPU               *int     `json:"cpu,omitempty"`
	CPUReservation    *float64 `json:"cpuReservation,omitempty"` // cpu in cores
	CPULimit          *int     `json:"cpuLimit,omitempty"`
	DiskReservationMb *int     `json:"diskReservationMb,omitempty"`

	PortRangeStart  *int              `json:"portRangeStart,omitempty"`
	PortRangeEnd    *int              `json:"portRangeEnd,omitempty"`
	AdditionalPorts *[]additionalPort `json:"additionalPorts,omitempty"`
	HostAddress     *string           `json:"hostAddress,omitempty"`

	Nodes            *[]string `json:"nodes,omitempty"`
	NodeAffinity     *[]string `json:"nodeAffinity,omitempty"`
	NodeAntiAffinity *[]string `json:"nodeAntiAffinity,omitempty"`
	SpreadConstraint *string   `json:"spreadConstraint,omitempty"`
	placingFields

	Templates                  *[]string     `json:"templates,omitempty"`
	TemplateInstallationConfig *installation `json:"templateInstallationConfig,omitempty"`
	FileModifications          *[]string     `json:"fileModifications,omitempty"`
	composing.Files
	Env            *values   `json:"env,omitempty"`
	VariableValues *values   `json:"variableValues,omitempty"`
	InstanceGroups *[]string `json:"instanceGroups,omitempty"`

	Static              *bool     `json:"static,omitempty"`
	StaticInstanceNames *[]string `json:"staticInstanceNames,omitempty"`
	ProtectedPaths      *[]string `json:"protectedPaths,omitempty"`

	StopCommand          *string `json:"stopCommand,omitempty"`
	ShutdownGraceSeconds *int    `json:"shutdownGraceSeconds,omitempty"`
	StopSignal           *string `json:"stopSignal,omitempty"`
	OnCrash              *string `json:"onCrash,omitempty"`
	OnNodeLoss           *string `json:"onNodeLoss,omitempty"`
	OnNodeReturn         *string `json:"onNodeReturn,omitempty"`
	running.Fields

	Maintenance        *bool     `json:"maintenance,omitempty"`
	MaintenanceMessage *string   `json:"maintenanceMessage,omitempty"`
	MaintenanceBypass  *[]string `json:"maintenanceBypass,omitempty"`

	Motds               *[]string `json:"motds,omitempty"`
	MotdMode            *string   `json:"motdMode,omitempty"`
	MotdIntervalSeconds *int      `json:"motdIntervalSeconds,omitempty"`

	DependsOn      *[]fleet.GroupName `json:"dependsOn,omitempty"`
	StartupWeight  *int               `json:"startupWeight,omitempty"`
	Priority       *int               `json:"priority,omitempty"`
	UpdateStrategy *string            `json:"updateStrategy,omitempty"`

	AttachedModules    *[]string                              `json:"attachedModules,omitempty"`
	EnabledModules     *[]string                              `json:"enabledModules,omitempty"`
	DisabledModules    *[]string                              `json:"disabledModules,omitempty"`
	AttachedExtensions *[]string                              `json:"attachedExtensions,omitempty"`
	EnabledExtensions  *[]string                              `json:"enabledExtensions,omitempty"`
	DisabledExtensions *[]string                              `json:"disabledExtensions,omitempty"`
	ConfigPatches      *map[string]map[string]json.RawMessage `json:"configPatches,omitempty"`
}

// values are placeholder values or environment entries; null stands for no entry.
type values map[string]*string

// additionalPort is one more port of an instance; port stands for start and end.
type additionalPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     *int   `json:"port,omitempty"`
	Start    *int   `json:"start,omitempty"`
	End      *int   `json:"end,omitempty"`
}

// installation is the full selection of templates; the list templates is its allOf.
type installation struct {
	AllOf       []layer  `json:"allOf"`
	AllInGroups []string `json:"allInGroups"`
	OneOf       []layer  `json:"oneOf"`
	OneInGroups []string `json:"oneInGroups"`
	Override    *bool    `json:"onTemplatePasteOverridePresentFiles"`
}

type layer struct {
	Name     string `json:"name"`
	Group    string `json:"group"`
	Storage  string `json:"storage"`
	Priority int    `json:"priority"`
}

// groupBody is what a client sends: the fields, its name, and what is accepted
// without meaning anything.
type groupBody struct {
	Name *fleet.GroupName `json:"name"`
	groupFields
	ignoredFields
	readOnlyFields
}

// ignoredFields are sent by known clients and mean nothing here.
type ignoredFields struct {
	Routing           json.RawMessage `json:"routing"`
	PredictiveScaling json.RawMessage `json:"predictiveScaling"`
	ScaleUpMargin     json.RawMessage `json:"scaleUpMargin"`
	BurstCeiling      json.RawMessage `json:"burstCeiling"`
	DrainOnShutdown   json.RawMessage `json:"drainOnShutdown"`
}

// readOnlyFields come with a read and may be sent back.
type readOnlyFields struct {
	RunningInstances json.RawMessage `json:"runningInstances"`
	TotalPlayers     json.RawMessage `json:"totalPlayers"`
	RuntimeTarget    json.RawMessage `json:"runtimeTarget"`
	Revision         json.RawMessage `json:"revision"`
	CreatedAt        json.RawMessage `json:"createdAt"`
	UpdatedAt        json.RawMessage `json:"updatedAt"`
	Paused           json.RawMessage `json:"paused"`
	CrashLoop        json.RawMessage `json:"crashLoop"`
	Held             json.RawMessage `json:"held"`
	Message          json.RawMessage `json:"message"`
}

// spec is what the fields make of a group: each given one, and the default of all others.
func (f groupFields) spec() (fleet.GroupSpec, error) {
	s := fleet.DefaultSpec()
	upper := func(field *string, given *string) {
		if given != nil {
			*field = strings.ToUpper(*given)
		}
	}
	set(&s.Parent, f.Parent)
	upper(&s.Software.Platform, f.Platform)
	s.Software.Assumed = f.Platform == nil
	set(&s.Software.PlatformVersion, f.PlatformVersion)
	set(&s.Software.JarFile, f.JarFile)
	set(&s.Software.JVMArgs, f.JVMArgs)
	set(&s.Command, f.Command)
	set(&s.Runtime, (*fleet.RuntimeName)(f.Runtime))
	upper((*string)(&s.Scaling.Mode), f.ScalingMode)
	f.numbers(&s)
	set(&s.Players.FallbackGroup, f.FallbackGroup)
	set(&s.Players.DefaultGroup, f.DefaultGroup)
	set(&s.Players.BedrockProxyGroup, f.BedrockProxyGroup)
	set(&s.HostAddress, f.HostAddress)
	set(&s.Where.Affinity, f.NodeAffinity)
	set(&s.Where.AntiAffinity, f.NodeAntiAffinity)
	set(&s.Where.Spread, f.SpreadConstraint)
	f.placingFields.onto(&s)
	set(&s.FileModifications, f.FileModifications)
	s.Env, s.Variables = f.Env.given(), f.VariableValues.given()
	set(&s.InstanceGroups, f.InstanceGroups)
	f.life(&s)
	set(&s.Maintenance.On, f.Maintenance)
	set(&s.Maintenance.Message, f.MaintenanceMessage)
	set(&s.Maintenance.Bypass, f.MaintenanceBypass)
	set(&s.Motd.Lines, f.Motds)
	upper(&s.Motd.Mode, f.MotdMode)
	set(&s.DependsOn, f.DependsOn)
	upper(&s.UpdateStrategy, f.UpdateStrategy)
	f.composition(&s.Composition)
	f.Files.Onto(&s)
	f.selection(&s.Templates)
	if err := f.ports(&s); err != nil {
		return s, err
	}
	if cores := f.CPUReservation; f.CPU == nil && cores != nil && !(*cores >= 0 && *cores <= maxCores) {
		return s, errs.Field("cpuReservation", "must be between 0 and %d cores, is %v", maxCores, *cores)
	}
	return s, f.nodes(&s.Where)
}

func (f groupFields) numbers(s *fleet.GroupSpec) {
	set(&s.Scaling.Min, f.MinInstances)
	set(&s.Scaling.Max, f.MaxInstances)
	set(&s.Scaling.UpThreshold, f.ScaleUpThreshold)
	set(&s.Scaling.DownAfterSeconds, f.ScaleDownAfterSeconds)
	set(&s.Scaling.CooldownSeconds, f.ScaleCooldownSeconds)
	set(&s.Scaling.WarmPoolMinimum, f.WarmPoolMinPrepared)
	set(&s.Players.Max, f.MaxPlayers)
	set(&s.Resources.MemoryMiB, f.MemoryMb)
	if f.CPUReservation != nil {
		s.Resources.CPU = hundredths(*f.CPUReservation)
	}
	set(&s.Resources.CPU, f.CPU)
	set(&s.CPULimit, f.CPULimit)
	set(&s.Resources.DiskMiB, f.DiskReservationMb)
	set(&s.Ports.Start, f.PortRangeStart)
	set(&s.Ports.End, f.PortRangeEnd)
	set(&s.Motd.IntervalSeconds, f.MotdIntervalSeconds)
	set(&s.StartupWeight, f.StartupWeight)
	set(&s.Priority, f.Priority)
}

// maxCores bounds cpuReservation; cpu has its bound in hundredths.
const maxCores = 10_000

// hundredths are of a core; what no integer holds stays far outside the bounds.
func hundredths(cores float64) int {
	return int(math.Round(max(min(cores*100, math.MaxInt32), math.MinInt32)))
}

func (f groupFields) life(s *fleet.GroupSpec) {
	set(&s.Static.Enabled, f.Static)
	set(&s.Static.InstanceNames, f.StaticInstanceNames)
	set(&s.Static.ProtectedPaths, f.ProtectedPaths)
	set(&s.Stop.Command, f.StopCommand)
	set(&s.Stop.GraceSeconds, f.ShutdownGraceSeconds)
	if f.StopSignal != nil {
		s.Stop.Signal = strings.TrimPrefix(strings.ToUpper(*f.StopSignal), "SIG")
	}
	f.Fields.Onto(s)
	set(&s.OnCrash, (*fleet.OnCrash)(f.OnCrash))
	set(&s.OnNodeLoss, (*fleet.OnNodeLoss)(f.OnNodeLoss))
	set(&s.OnNodeReturn, (*fleet.OnNodeReturn)(f.OnNodeReturn))
}

func (f groupFields) composition(c *fleet.Composition) {
	set(&c.AttachedModules, f.AttachedModules)
	set(&c.EnabledModules, f.EnabledModules)
	set(&c.DisabledModules, f.DisabledModules)
	set(&c.AttachedExtensions, f.AttachedExtensions)
	set(&c.EnabledExtensions, f.EnabledExtensions)
	set(&c.DisabledExtensions, f.DisabledExtensions)
	set(&c.ConfigPatches, f.ConfigPatches)
}

// selection takes the full selection first; a list of names that says something
// else is its allOf, in order.
func (f groupFields) selection(t *fleet.TemplateSelection) {
	if in := f.TemplateInstallationConfig; in != nil {
		t.AllOf, t.OneOf = layersOf(in.AllOf), layersOf(in.OneOf)
		t.AllInGroups, t.OneInGroups = in.AllInGroups, in.OneInGroups
		set(&t.Override, in.Override)
	}
	if f.Templates == nil || slices.Equal(*f.Templates, templateNames(t.AllOf)) {
		return
	}
	t.AllOf = nil
	for _, name := range *f.Templates {
		t.AllOf = append(t.AllOf, fleet.TemplateLayer{TemplateRef: fleet.ParseTemplateRef(name)})
	}
}

const localStorage = "local"

func layersOf(in []layer) []fleet.TemplateLayer {
	var out []fleet.TemplateLayer
	for _, l := range in {
		ref := fleet.TemplateRef{Group: l.Group, Name: l.Name}
		if ref.Group == "" {
			ref.Group = fleet.DefaultTemplateGroup
		}
		if l.Storage == localStorage {
			l.Storage = ""
		}
		out = append(out, fleet.TemplateLayer{TemplateRef: ref, Storage: l.Storage, Priority: l.Priority})
	}
	return out
}

func templateNames(layers []fleet.TemplateLayer) []string {
	out := []string{}
	for _, l := range layers {
		out = append(out, l.Short())
	}
	return out
}

func (f groupFields) ports(s *fleet.GroupSpec) error {
	if f.AdditionalPorts == nil {
		return nil
	}
	for i, p := range *f.AdditionalPorts {
		named := fleet.NamedPort{Name: p.Name, Protocol: strings.ToLower(p.Protocol)}
		if named.Protocol == "" {
			named.Protocol = "tcp"
		}
		if p.Port != nil {
			if p.Start != nil || p.End != nil {
				return errs.Field(fmt.Sprintf("additionalPorts[%d]", i), "must have either port or start and end, and has both")
			}
			p.Start, p.End = p.Port, p.Port
		}
		set(&named.Range.Start, p.Start)
		set(&named.Range.End, p.End)
		s.AdditionalPorts = append(s.AdditionalPorts, named)
	}
	return nil
}

const anyNode = "*"

func (f groupFields) nodes(w *fleet.Where) error {
	if f.Nodes == nil {
		return nil
	}
	if len(*f.Nodes) == 0 {
		return errs.Field("nodes", `must name at least one node: an empty list would run nowhere; ["*"] means any node`)
	}
	if slices.Equal(*f.Nodes, []string{anyNode}) {
		return nil
	}
	for _, n := range *f.Nodes {
		w.Nodes = append(w.Nodes, fleet.NodeID(n))
	}
	return nil
}

func set[T any](field *T, given *T) {
	if given != nil {
		*field = *given
	}
}

// given are the entries that are not null.
func (v *values) given() map[string]string {
	if v == nil || len(*v) == 0 {
		return nil
	}
	out := make(map[string]string, len(*v))
	for k, entry := range *v {
		if entry != nil {
			out[k] = *entry
		}
	}
	return out
}
