package universe

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/groupfields"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/score"
)

// Defaults of fields where the dialect differs from the native group.
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

// Configuration is a group in this dialect. Every field is always present, except EnvironmentVariables,
// which callers without groups.env do not get.
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
	// The only native fields that responses include: those that produce an instance's files.
	groupfields.Files
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

// additionalPort is an additional port of an instance: Port itself, or with End any free port from Port
// to End.
type additionalPort struct {
	Port     whole  `json:"port"`
	Protocol string `json:"protocol"`
	Name     string `json:"name"`
	End      whole  `json:"end,omitempty"`
}

// ConfigurationOf converts a group to this dialect.
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
		AdditionalPorts: additionalPortsOf(s.AdditionalPorts), Files: groupfields.FilesOf(s),
	}
}

// list and object return [] and {} instead of null for empty values.
func list(s []string) []string { return append([]string{}, s...) }

func object(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// nodesOf converts a list of allowed nodes. An empty list means any node, which this dialect writes as
// "*".
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

func layersOf(layers []content.TemplateLayer) []templateRef {
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

// configurationBody is the configuration in a request. Absent and null fields get their defaults. The
// name in the path wins over the body's.
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

// spec returns the group's spec. Fields of this dialect get the body's values or their defaults; all
// other fields keep their values from old, which is nil for a new group.
func (b configurationBody) spec(old *fleet.GroupSpec) (fleet.GroupSpec, error) {
	s := fleet.DefaultSpec()
	s.Scaling.Max = 0       // this dialect has no maximum
	s.MergeFiles = nil      // replaces whole files
	s.AutoLayers = false    // uses only the named templates
	s.Software.JarFile = "" // runs only its command
	if b.PlacementWeights == nil && b.SpreadConstraint == nil {
		s.Where.Profile = score.ProfileMemory // prefers the node with the most free memory
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
	if old == nil || old.Explicit != nil {
		sent, err := groupfields.Sent(b.nativeFields)
		if err != nil {
			return s, err
		}
		for _, name := range s.Explicit {
			sent[name] = true
		}
		for _, name := range dialectFields {
			sent[name] = true
		}
		s.Explicit = compose.Explicit(sent)
	}
	return s, nil
}

// dialectFields are the native names of single values that a configuration always sets, to values of
// its own if the body omits them.
var dialectFields = []string{"runtime", "command", "memoryMb", "cpu", "hostAddress", "portRangeStart", "jarFile", "autoLayers"}

// NewConfiguration returns the spec of a configuration with the given runtime and command and defaults
// for the rest.
func NewConfiguration(runtime, command string) (fleet.GroupSpec, error) {
	return configurationBody{Runtime: &runtime, Command: &command}.spec(nil)
}

func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// nodes returns the allowed nodes. "*" alone becomes an empty list, which allows any node.
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

// env returns the declared environment, or the dialect's default entry if none is declared.
func (b configurationBody) env() map[string]string {
	if b.EnvironmentVariables == nil {
		return map[string]string{"UNIVERSE_INSTANCE_ID": "%INSTANCE_ID%"}
	}
	return maps.Clone(b.EnvironmentVariables)
}

func (t templateInstallation) selection() content.TemplateSelection {
	layers := func(refs []templateRef) []content.TemplateLayer {
		var out []content.TemplateLayer
		for _, r := range refs {
			if r.Storage == localStorage {
				r.Storage = ""
			}
			ref := content.TemplateRef{Group: cmp.Or(r.Group, content.DefaultTemplateGroup), Name: r.Name}
			out = append(out, content.TemplateLayer{TemplateRef: ref, Storage: r.Storage, Priority: int(r.Priority)})
		}
		return out
	}
	return content.TemplateSelection{
		AllOf: layers(t.AllOf), AllInGroups: t.AllInGroups, OneOf: layers(t.OneOf), OneInGroups: t.OneInGroups,
		Override: t.OnTemplatePasteOverridePresentFiles,
	}
}

// additionalPorts converts the ports. A port without an end keeps the end of an old range with the same
// name and start, and is a fixed port otherwise. A port without a name gets one.
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
