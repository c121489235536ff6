package groups

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/groupfields"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// groupFields are the writable fields of a group. In a request, a nil field takes its default. In
// an answer, every field is set.
type groupFields struct {
	Platform *string `json:"platform,omitempty"`
	Command  *string `json:"command,omitempty"`
	Runtime  *string `json:"runtime,omitempty"`

	ScalingMode  *string `json:"scalingMode,omitempty"`
	MinInstances *int    `json:"minInstances,omitempty"`

	MemoryMb       *int     `json:"memoryMb,omitempty"`
	CPU            *int     `json:"cpu,omitempty"`
	CPUReservation *float64 `json:"cpuReservation,omitempty"` // CPU in cores

	PortRangeStart  *int              `json:"portRangeStart,omitempty"`
	PortRangeEnd    *int              `json:"portRangeEnd,omitempty"`
	AdditionalPorts *[]additionalPort `json:"additionalPorts,omitempty"`
	HostAddress     *string           `json:"hostAddress,omitempty"`

	Nodes *[]string `json:"nodes,omitempty"`
	placementFields

	Templates                  *[]string     `json:"templates,omitempty"`
	TemplateInstallationConfig *installation `json:"templateInstallationConfig,omitempty"`
	FileModifications          *[]string     `json:"fileModifications,omitempty"`
	groupfields.Files
	Env            *resource.Values `json:"env,omitempty"`
	VariableValues *resource.Values `json:"variableValues,omitempty"`
	InstanceGroups *[]string        `json:"instanceGroups,omitempty"`

	Static *bool `json:"static,omitempty"`

	StopSignal *string `json:"stopSignal,omitempty"`
	groupfields.Shared
	groupfields.Process

	MotdMode *string `json:"motdMode,omitempty"`

	UpdateStrategy *string `json:"updateStrategy,omitempty"`
}

// additionalPort is an extra port of an instance. Port is short for an equal start and end.
type additionalPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     *int   `json:"port,omitempty"`
	Start    *int   `json:"start,omitempty"`
	End      *int   `json:"end,omitempty"`
}

// installation is the full template selection. The field templates lists its allOf.
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

// groupBody is the body of a request that writes a group.
type groupBody struct {
	Name *fleet.GroupName `json:"name"`
	groupFields
	ignoredFields
	readOnlyFields
}

// ignoredFields are accepted because known clients send them. They have no effect.
type ignoredFields struct {
	Routing           json.RawMessage `json:"routing"`
	PredictiveScaling json.RawMessage `json:"predictiveScaling"`
	ScaleUpMargin     json.RawMessage `json:"scaleUpMargin"`
	BurstCeiling      json.RawMessage `json:"burstCeiling"`
	DrainOnShutdown   json.RawMessage `json:"drainOnShutdown"`
}

// readOnlyFields are accepted so that a client can send back what it read. They have no effect.
type readOnlyFields struct {
	RunningInstances json.RawMessage `json:"runningInstances"`
	TotalPlayers     json.RawMessage `json:"totalPlayers"`
	RuntimeTarget    json.RawMessage `json:"runtimeTarget"`
	Revision         json.RawMessage `json:"revision"`
	CreatedAt        json.RawMessage `json:"createdAt"`
	UpdatedAt        json.RawMessage `json:"updatedAt"`
	Paused           json.RawMessage `json:"paused"`
	CrashLoop        json.RawMessage `json:"crashLoop"`
	Scaling          json.RawMessage `json:"scaling"`
	Held             json.RawMessage `json:"held"`
	Message          json.RawMessage `json:"message"`
}

// sentBack reports whether the body is an answer that the client changed: it has fields that only
// answers have.
func (b groupBody) sentBack() bool { return b.Revision != nil || b.RunningInstances != nil }

// spec returns the spec with the given fields and the default of every other field.
func (f groupFields) spec() (fleet.GroupSpec, error) {
	s := fleet.DefaultSpec()
	upper := func(field *string, given *string) {
		if given != nil {
			*field = strings.ToUpper(*given)
		}
	}
	upper(&s.Software.Platform, f.Platform)
	s.Software.Assumed = f.Platform == nil
	resource.Set(&s.Command, f.Command)
	resource.Set(&s.Runtime, (*fleet.RuntimeName)(f.Runtime))
	upper((*string)(&s.Scaling.Mode), f.ScalingMode)
	f.numbers(&s)
	resource.Set(&s.HostAddress, f.HostAddress)
	f.placementFields.onto(&s)
	resource.Set(&s.FileModifications, f.FileModifications)
	s.Env, s.Variables = f.Env.Given(), f.VariableValues.Given()
	resource.Set(&s.InstanceGroups, f.InstanceGroups)
	resource.Set(&s.Static.Enabled, f.Static)
	if f.StopSignal != nil {
		s.Stop.Signal = strings.TrimPrefix(strings.ToUpper(*f.StopSignal), "SIG")
	}
	f.Process.Apply(&s)
	upper(&s.Motd.Mode, f.MotdMode)
	upper(&s.UpdateStrategy, f.UpdateStrategy)
	f.Shared.Apply(&s)
	f.Files.Apply(&s)
	f.selection(&s.Templates)
	if err := f.ports(&s); err != nil {
		return s, err
	}
	if cores := f.CPUReservation; f.CPU == nil && cores != nil && !(*cores >= 0 && *cores <= maxCores) {
		return s, errs.Field("cpuReservation", "must be between 0 and %d cores, is %v", maxCores, *cores)
	}
	if err := f.nodes(&s.Where); err != nil {
		return s, err
	}
	sent, err := groupfields.Sent(f)
	if err != nil {
		return s, err
	}
	sent["cpu"] = sent["cpu"] || sent["cpuReservation"]
	s.Explicit = compose.Explicit(sent)
	return s, nil
}

func (f groupFields) numbers(s *fleet.GroupSpec) {
	resource.Set(&s.Scaling.Min, f.MinInstances)
	resource.Set(&s.Resources.MemoryMiB, f.MemoryMb)
	if f.CPUReservation != nil {
		s.Resources.CPU = hundredths(*f.CPUReservation)
	}
	resource.Set(&s.Resources.CPU, f.CPU)
	resource.Set(&s.Ports.Start, f.PortRangeStart)
	resource.Set(&s.Ports.End, f.PortRangeEnd)
}

// maxCores bounds cpuReservation. The spec's own validation bounds cpu.
const maxCores = 10_000

// hundredths converts cores to hundredths of a core. It clamps values that no integer can hold;
// they stay far out of bounds.
func hundredths(cores float64) int {
	return int(math.Round(max(min(cores*100, math.MaxInt32), math.MinInt32)))
}

// selection applies templateInstallationConfig first. If templates differs from its allOf,
// templates replaces the allOf, in order.
func (f groupFields) selection(t *content.TemplateSelection) {
	if in := f.TemplateInstallationConfig; in != nil {
		t.AllOf, t.OneOf = layersOf(in.AllOf), layersOf(in.OneOf)
		t.AllInGroups, t.OneInGroups = in.AllInGroups, in.OneInGroups
		resource.Set(&t.Override, in.Override)
	}
	if f.Templates == nil || slices.Equal(*f.Templates, templateNames(t.AllOf)) {
		return
	}
	t.AllOf = nil
	for _, name := range *f.Templates {
		t.AllOf = append(t.AllOf, content.TemplateLayer{TemplateRef: content.ParseTemplateRef(name)})
	}
}

const localStorage = "local"

func layersOf(in []layer) []content.TemplateLayer {
	var out []content.TemplateLayer
	for _, l := range in {
		ref := content.TemplateRef{Group: l.Group, Name: l.Name}
		if ref.Group == "" {
			ref.Group = content.DefaultTemplateGroup
		}
		if l.Storage == localStorage {
			l.Storage = ""
		}
		out = append(out, content.TemplateLayer{TemplateRef: ref, Storage: l.Storage, Priority: l.Priority})
	}
	return out
}

func templateNames(layers []content.TemplateLayer) []string {
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
				return errs.Field(fmt.Sprintf("additionalPorts[%d]", i), "takes either port, or start and end, not both")
			}
			p.Start, p.End = p.Port, p.Port
		}
		resource.Set(&named.Range.Start, p.Start)
		resource.Set(&named.Range.End, p.End)
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

// writtenPath returns the path under which the client sent a field that it can write in two forms. If
// the client did not send it, writtenPath returns the common form.
func (f groupFields) writtenPath(field string) string {
	if rest, ok := strings.CutPrefix(field, "templates.allOf"); ok && f.TemplateInstallationConfig == nil {
		return "templates" + rest
	}
	if rest, ok := strings.CutPrefix(field, "templates."); ok {
		return "templateInstallationConfig." + rest
	}
	if f.AdditionalPorts == nil {
		return field
	}
	for i, p := range *f.AdditionalPorts {
		at := fmt.Sprintf("additionalPorts[%d].", i)
		if p.Port != nil && strings.HasPrefix(field, at) {
			return at + "port"
		}
	}
	return field
}
