package universe

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/composing"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Defaults of a configuration's fields where they differ from a group's.
const (
	defaultRAM     = 2048
	defaultCPU     = 100
	defaultPortMin = 25565
	defaultPortMax = 25570
	defaultMinimum = 1
	defaultHost    = "127.0.0.1"
	defaultNode    = "node-1"
	localStorage   = "local"
	anyNode        = "*"
)

// Configuration is a group as this dialect shows it. Every field is always there, except
// that callers without groups.env see no EnvironmentVariables.
type Configuration struct {
	Name                       string               `json:"name"`
	Runtime                    string               `json:"runtime"`
	Command                    string               `json:"command"`
	Static                     bool                 `json:"static"`
	RAMMB                      int                  `json:"ramMB"`
	CPU                        int                  `json:"cpu"`
	InstanceGroups             []string             `json:"instanceGroups"`
	Nodes                      []string             `json:"nodes"`
	HostAddress                string               `json:"hostAddress"`
	AvailablePorts             portRange            `json:"availablePorts"`
	MinimumServiceCount        int                  `json:"minimumServiceCount"`
	EnvironmentVariables       map[string]string    `json:"environmentVariables,omitzero"`
	TemplateInstallationConfig templateInstallation `json:"templateInstallationConfig"`
	FileModifications          []string             `json:"fileModifications"`
	Properties                 map[string]string    `json:"properties"`
	AdditionalPorts            []additionalPort     `json:"additionalPorts"`
	// Of the fields this dialect never had it shows what the files are made with.
	composing.Files
}

type portRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

type templateInstallation struct {
	AllOf                               []templateRef `json:"allOf"`
	AllInGroups                         []string      `json:"allInGroups"`
	OneOf                               []templateRef `json:"oneOf"`
	OneInGroups                         []string      `json:"oneInGroups"`
	OnTemplatePasteOverridePresentFiles bool          `json:"onTemplatePasteOverridePresentFiles"`
}

type templateRef struct {
	Name     string `json:"name"`
	Group    string `json:"group"`
	Storage  string `json:"storage"`
	Priority whole  `json:"priority"`
}

// additionalPort is one more port of an instance: a fixed one, or with an end any
// that is free from port to end.
type additionalPort struct {
	Port     whole  `json:"port"`
	Protocol string `json:"protocol"`
	Name     string `json:"name"`
	End      whole  `json:"end,omitempty"`
}

// ConfigurationOf shows a group.
func ConfigurationOf(g *fleet.Group) Configuration {
	s := g.Spec
	return Configuration{
		Name: string(g.Name), Runtime: string(s.Runtime), Command: s.Command, Static: s.Static.Enabled,
		RAMMB: s.Resources.MemoryMiB, CPU: s.Resources.CPU,
		InstanceGroups: list(s.InstanceGroups), Nodes: nodesOf(s.Where.Nodes), HostAddress: s.HostAddress,
		AvailablePorts:      portRange{Min: s.Ports.Start, Max: s.Ports.End},
		MinimumServiceCount: s.Scaling.Min, EnvironmentVariables: object(s.Env),
		TemplateInstallationConfig: templateInstallation{
			AllOf: layersOf(s.Templates.AllOf), AllInGroups: list(s.Templates.AllInGroups),
			OneOf: layersOf(s.Templates.OneOf), OneInGroups: list(s.Templates.OneInGroups),
			OnTemplatePasteOverridePresentFiles: s.Templates.Override,
		},
		FileModifications: list(s.FileModifications), Properties: object(s.Variables),
		AdditionalPorts: additionalPortsOf(s.AdditionalPorts), Files: composing.Of(s),
	}
}

// list and object make the empty value [] and {} instead of null.
func list(s []string) []string { return append([]string{}, s...) }

func object(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// nodesOf shows a node list; none, which is any, is "*" here.
func nodesOf(nodes []fleet.NodeID) []string {
	if len(nodes) == 0 {
		return []string{anyNode}
	}
	out := make([]string, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, string(n))
	}
	return out
}

func layersOf(layers []fleet.TemplateLayer) []templateRef {
	out := make([]templateRef, 0, len(layers))
	for _, l := range layers {
		out = append(out, templateRef{Name: l.Name, Group: l.Group, Storage: cmp.Or(l.Storage, localStorage), Priority: whole(l.Priority)})
	}
	return out
}

func additionalPortsOf(ports []fleet.NamedPort) []additionalPort {
	out := make([]additionalPort, 0, len(ports))
	for _, p := range ports {
		shown := additionalPort{Port: whole(p.Range.Start), Protocol: strings.ToUpper(p.Protocol), Name: p.Name}
		if p.Range.End != p.Range.Start {
			shown.End = whole(p.Range.End)
		}
		out = append(out, shown)
	}
	return out
}

// configurationBody is a configuration as a client sends it: what is absent (or
// null) takes its default. The name in the path wins over the body's.
type configurationBody struct {
	Name                       *string              `json:"name"`
	Runtime                    *string              `json:"runtime"`
	Command                    *string              `json:"command"`
	Static                     *bool                `json:"static"`
	RAMMB                      *whole               `json:"ramMB"`
	CPU                        *whole               `json:"cpu"`
	InstanceGroups             []string             `json:"instanceGroups"`
	Nodes                      []string             `json:"nodes"`
	HostAddress                *string              `json:"hostAddress"`
	AvailablePorts             portRangeBody        `json:"availablePorts"`
	MinimumServiceCount        *whole               `json:"minimumServiceCount"`
	EnvironmentVariables       map[string]string    `json:"environmentVariables"`
	TemplateInstallationConfig templateInstallation `json:"templateInstallationConfig"`
	FileModifications          []string             `json:"fileModifications"`
	Properties                 map[string]string    `json:"properties"`
	AdditionalPorts            []additionalPort     `json:"additionalPorts"`

	nativeFields
}

type portRangeBody struct {
	Min *whole `json:"min"`
	Max *whole `json:"max"`
}

// spec is what the body makes of a group: the fields of this dialect from the
// body or their defaults, all others as they were (old is nil for a new group).
func (b configurationBody) spec(old *fleet.GroupSpec) (fleet.GroupSpec, error) {
	s := fleet.DefaultSpec()
	s.Scaling.Max = 0       // this dialect knows no maximum
	s.MergeFiles = nil      // takes whole files,
	s.AutoLayers = false    // and only the templates it names,
	s.Software.JarFile = "" // and runs nothing but its command
	if b.PlacementWeights == nil && b.SpreadConstraint == nil {
		s.Where.Profile = fleet.ProfileMemory // the node with the most free RAM wins
	}
	if old != nil {
		s = *old
	}
	nodes, err := b.nodes()
	if err != nil {
		return s, err
	}
	s.Runtime = fleet.RuntimeName(or(b.Runtime, string(fleet.RuntimeProcess)))
	s.Command = or(b.Command, "")
	s.Static.Enabled = or(b.Static, false)
	s.Resources.MemoryMiB, s.Resources.CPU = int(or(b.RAMMB, defaultRAM)), int(or(b.CPU, defaultCPU))
	s.InstanceGroups = b.InstanceGroups
	s.Where.Nodes = nodes
	s.HostAddress = or(b.HostAddress, defaultHost)
	s.Ports = fleet.PortRange{Start: int(or(b.AvailablePorts.Min, defaultPortMin)), End: int(or(b.AvailablePorts.Max, defaultPortMax))}
	s.Scaling.Min = int(or(b.MinimumServiceCount, defaultMinimum))
	s.Env = b.env()
	s.Templates = b.TemplateInstallationConfig.selection()
	s.FileModifications = b.FileModifications
	s.Variables = maps.Clone(b.Properties)
	s.AdditionalPorts = b.additionalPorts(s.AdditionalPorts)
	b.onto(&s)
	return s, nil
}

// NewConfiguration is a configuration of which nothing is said but its runtime and command.
func NewConfiguration(runtime, command string) (fleet.GroupSpec, error) {
	return configurationBody{Runtime: &runtime, Command: &command}.spec(nil)
}

func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// nodes are the allowed nodes; "*" alone is none, which is any.
func (b configurationBody) nodes() ([]fleet.NodeID, error) {
	switch {
	case b.Nodes == nil:
		return []fleet.NodeID{defaultNode}, nil
	case len(b.Nodes) == 0:
		return nil, errs.Field("nodes", `must name at least one node: an empty list would run nowhere; ["*"] means any node`)
	case slices.Equal(b.Nodes, []string{anyNode}):
		return nil, nil
	}
	out := make([]fleet.NodeID, 0, len(b.Nodes))
	for _, n := range b.Nodes {
		out = append(out, fleet.NodeID(n))
	}
	return out, nil
}

// env is the declared environment; whoever declares one loses the default entry.
func (b configurationBody) env() map[string]string {
	if b.EnvironmentVariables == nil {
		return map[string]string{"UNIVERSE_INSTANCE_ID": "%INSTANCE_ID%"}
	}
	return maps.Clone(b.EnvironmentVariables)
}

func (t templateInstallation) selection() fleet.TemplateSelection {
	layers := func(refs []templateRef) []fleet.TemplateLayer {
		var out []fleet.TemplateLayer
		for _, r := range refs {
			if r.Storage == localStorage {
				r.Storage = ""
			}
			ref := fleet.TemplateRef{Group: cmp.Or(r.Group, fleet.DefaultTemplateGroup), Name: r.Name}
			out = append(out, fleet.TemplateLayer{TemplateRef: ref, Storage: r.Storage, Priority: int(r.Priority)})
		}
		return out
	}
	return fleet.TemplateSelection{
		AllOf: layers(t.AllOf), AllInGroups: t.AllInGroups, OneOf: layers(t.OneOf), OneInGroups: t.OneInGroups,
		Override: t.OnTemplatePasteOverridePresentFiles,
	}
}

// additionalPorts are one fixed port each, or a range where they have an end; where
// the group had a range that begins there under that name and no end is given, the
// range stays. A port without a name gets one.
func (b configurationBody) additionalPorts(old []fleet.NamedPort) []fleet.NamedPort {
	var out []fleet.NamedPort
	for _, p := range b.AdditionalPorts {
		next := fleet.NamedPort{
			Name:     cmp.Or(p.Name, "port-"+strconv.Itoa(int(p.Port))),
			Protocol: strings.ToLower(cmp.Or(p.Protocol, "tcp")),
			Range:    fleet.PortRange{Start: int(p.Port), End: int(cmp.Or(p.End, p.Port))},
		}
		for _, o := range old {
			if p.End == 0 && o.Name == next.Name && o.Range.Start == int(p.Port) {
				next.Range = o.Range
			}
		}
		out = append(out, next)
	}
	return out
}
