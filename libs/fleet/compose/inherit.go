package compose

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
)

// MaxAncestors bounds the length of a chain of parents.
const MaxAncestors = 10

// Ancestors returns a group's parent, its grandparent and so on. It stops at a cycle or after
// MaxAncestors. Gateways reject both, but concurrent writes can create them.
func Ancestors(g *fleet.Group, of func(fleet.GroupName) (*fleet.Group, bool)) []*fleet.Group {
	var out []*fleet.Group
	seen := map[fleet.GroupName]bool{g.Name: true}
	for next := g.Spec.Parent; next != "" && !seen[next] && len(out) < MaxAncestors; {
		p, ok := of(next)
		if !ok {
			break
		}
		seen[next] = true
		out = append(out, p)
		next = p.Spec.Parent
	}
	return out
}

// A field is a list or a single value that a group inherits if it does not set it.
type field struct {
	// names are its names in /api/v1. Fields with more than one name are inherited together.
	names []string
	// single is true for a value that always exists. GroupSpec.Explicit says whether a group sets it.
	single bool
	given  func(*fleet.GroupSpec) bool
	take   func(own, parent *fleet.GroupSpec)
}

// fields are the inherited fields except maps.
var fields = []field{
	single(func(s *fleet.GroupSpec) *string { return &s.Command }, "command"),
	single(func(s *fleet.GroupSpec) *fleet.RuntimeName { return &s.Runtime }, "runtime"),
	platform,
	single(func(s *fleet.GroupSpec) *string { return &s.Software.PlatformVersion }, "platformVersion"),
	single(func(s *fleet.GroupSpec) *string { return &s.Software.JarFile }, "jarFile"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Software.JVMArgs }, "jvmArgs"),
	single(func(s *fleet.GroupSpec) *int { return &s.Resources.MemoryMiB }, "memoryMb"),
	single(func(s *fleet.GroupSpec) *int { return &s.Resources.CPU }, "cpu"),
	single(func(s *fleet.GroupSpec) *int { return &s.Resources.DiskMiB }, "diskReservationMb"),
	single(func(s *fleet.GroupSpec) *int { return &s.CPULimit }, "cpuLimit"),
	single(func(s *fleet.GroupSpec) *isolation.Limits { return &s.Limits }, "limits"),
	single(func(s *fleet.GroupSpec) *isolation.Confine { return &s.Confine }, "confine"),
	single(func(s *fleet.GroupSpec) *isolation.Container { return &s.Container }, "container"),
	single(func(s *fleet.GroupSpec) *fleet.RCON { return &s.RCON }, "rcon"),
	single(func(s *fleet.GroupSpec) *fleet.PortRange { return &s.Ports }, "portRangeStart", "portRangeEnd"),
	list(func(s *fleet.GroupSpec) *[]fleet.NamedPort { return &s.AdditionalPorts }, "additionalPorts"),
	single(func(s *fleet.GroupSpec) *string { return &s.HostAddress }, "hostAddress"),
	list(func(s *fleet.GroupSpec) *[]fleet.NodeID { return &s.Where.Nodes }, "nodes"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Where.Affinity }, "nodeAffinity"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Where.AntiAffinity }, "nodeAntiAffinity"),
	list(func(s *fleet.GroupSpec) *[]fleet.Preference { return &s.Where.Prefer }, "nodePreferences"),
	single(func(s *fleet.GroupSpec) *string { return &s.Where.Spread }, "spreadConstraint"),
	single(func(s *fleet.GroupSpec) *int { return &s.Where.MaxSkew }, "spreadMaxSkew"),
	single(func(s *fleet.GroupSpec) *int { return &s.Where.MaxPerNode }, "maxPerNode"),
	single(func(s *fleet.GroupSpec) *int { return &s.Players.Max }, "maxPlayers"),
	list(func(s *fleet.GroupSpec) *[]content.TemplateLayer { return &s.Templates.AllOf }, "templates"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Templates.AllInGroups }, "templateInstallationConfig.allInGroups"),
	list(func(s *fleet.GroupSpec) *[]content.TemplateLayer { return &s.Templates.OneOf }, "templateInstallationConfig.oneOf"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Templates.OneInGroups }, "templateInstallationConfig.oneInGroups"),
	single(func(s *fleet.GroupSpec) *bool { return &s.AutoLayers }, "autoLayers"),
	list(func(s *fleet.GroupSpec) *[]configfile.ConfigPatch { return &s.ConfigRules }, "configRules"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.InstanceGroups }, "instanceGroups"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Static.ProtectedPaths }, "protectedPaths"),
	single(func(s *fleet.GroupSpec) *string { return &s.Stop.Command }, "stopCommand"),
	single(func(s *fleet.GroupSpec) *int { return &s.Stop.GraceSeconds }, "shutdownGraceSeconds"),
	single(func(s *fleet.GroupSpec) *string { return &s.Stop.Signal }, "stopSignal"),
	single(func(s *fleet.GroupSpec) *fleet.Check { return &s.Readiness }, "readiness"),
	single(func(s *fleet.GroupSpec) *fleet.Liveness { return &s.Liveness }, "liveness"),
	single(func(s *fleet.GroupSpec) *int { return &s.StartupTimeoutSeconds }, "startupTimeoutSeconds"),
	single(func(s *fleet.GroupSpec) *int { return &s.MaxLifetimeSeconds }, "maxLifetimeSeconds"),
	single(func(s *fleet.GroupSpec) *fleet.OnCrash { return &s.OnCrash }, "onCrash"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Composition.AttachedModules }, "attachedModules"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Composition.EnabledModules }, "enabledModules"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Composition.DisabledModules }, "disabledModules"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Composition.AttachedExtensions }, "attachedExtensions"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Composition.EnabledExtensions }, "enabledExtensions"),
	list(func(s *fleet.GroupSpec) *[]string { return &s.Composition.DisabledExtensions }, "disabledExtensions"),
}

// platform is the platform, and whether it is only the default.
var platform = field{
	names: []string{"platform"}, single: true,
	given: func(s *fleet.GroupSpec) bool { return s.Sets("platform") },
	take: func(own, parent *fleet.GroupSpec) {
		own.Software.Platform, own.Software.Assumed = parent.Software.Platform, parent.Software.Assumed
	},
}

// list is a field with a list. A group sets it if it is not empty.
func list[T any](of func(*fleet.GroupSpec) *[]T, names ...string) field {
	return field{
		names: names,
		given: func(s *fleet.GroupSpec) bool { return len(*of(s)) > 0 },
		take:  func(own, parent *fleet.GroupSpec) { *of(own) = *of(parent) },
	}
}

// single is a field with a single value.
func single[T any](of func(*fleet.GroupSpec) *T, names ...string) field {
	return field{
		names: names, single: true,
		given: func(s *fleet.GroupSpec) bool { return s.Sets(names[0]) },
		take:  func(own, parent *fleet.GroupSpec) { *of(own) = *of(parent) },
	}
}

// Explicit returns which of the fields that a client sent, by their names in /api/v1, belong into
// the field Explicit of a spec. It is nil if the client sent all of them.
func Explicit(sent map[string]bool) []string {
	out, all := []string{}, true
	for _, f := range fields {
		switch {
		case !f.single:
		case slices.ContainsFunc(f.names, func(name string) bool { return sent[name] }):
			out = append(out, f.names...)
		default:
			all = false
		}
	}
	if all {
		return nil
	}
	slices.Sort(out)
	return out
}

// Unset returns the names in /api/v1 of the inheritable single values that a spec does not set.
func Unset(s *fleet.GroupSpec) []string {
	var out []string
	for _, f := range fields {
		for _, name := range f.names {
			if f.single && !f.given(s) {
				out = append(out, name)
			}
		}
	}
	return out
}

// KeepUnset sets the fields that neither spec sets to their values in old. So a value that no user
// set stays as it is when the default changes.
func KeepUnset(s, old *fleet.GroupSpec) {
	for _, f := range fields {
		if f.single && !f.given(s) && !f.given(old) {
			f.take(s, old)
		}
	}
}

// Inherit returns the group with the values it inherits from its ancestors, nearest first. It
// affects only what instances are built from and how they run. A list is inherited if the group's
// own is empty, a single value if no user set it; see GroupSpec.Explicit. Environment, variables and
// config patches are inherited key by key, except sealed values. FileModifications, MergeFiles,
// labels, and the fields that order and count groups are not inherited.
func Inherit(g fleet.Group, ancestors []*fleet.Group) fleet.Group {
	s := &g.Spec
	for _, a := range ancestors {
		p := a.Spec
		for _, f := range fields {
			if !f.given(s) && f.given(&p) {
				f.take(s, &p)
			}
		}
		s.Explicit = union(s.Explicit, p.Explicit)
		inheritPatches(&s.Composition, p.Composition)
		g.Hidden = inheritHidden(g, a)
		s.Env = merged(s.Env, p.Env)
		s.Variables = merged(s.Variables, unsealed(p.Variables))
	}
	return g
}

// union returns the names that a group or its parent sets. Nil means that one of them sets all.
func union(own, parents []string) []string {
	if own == nil || parents == nil {
		return nil
	}
	out := append(append([]string{}, own...), parents...)
	slices.Sort(out)
	return slices.Compact(out)
}

// Sources returns which group each inherited or own value of a group comes from, by its name in
// /api/v1. Entries of maps have the name of the map, a period and their key. A value that none of
// them sets is a default, and is absent.
func Sources(g *fleet.Group, ancestors []*fleet.Group) map[string]fleet.GroupName {
	out := map[string]fleet.GroupName{}
	set := func(name string, from fleet.GroupName) {
		if _, known := out[name]; !known {
			out[name] = from
		}
	}
	for n, a := range slices.Concat([]*fleet.Group{g}, ancestors) {
		for _, f := range fields {
			if f.given(&a.Spec) {
				for _, name := range f.names {
					set(name, a.Name)
				}
			}
		}
		variables := a.Spec.Variables
		if n > 0 {
			variables = unsealed(variables)
		}
		for key := range variables {
			set("variableValues."+key, a.Name)
		}
		for key := range a.Spec.Env {
			set("env."+key, a.Name)
		}
		for file, values := range a.Spec.Composition.ConfigPatches {
			for path := range values {
				set("configPatches."+file+"."+path, a.Name)
			}
		}
	}
	return out
}

func inheritPatches(c *fleet.Composition, p fleet.Composition) {
	if len(p.ConfigPatches) == 0 {
		return
	}
	patches := map[string]map[string]json.RawMessage{}
	maps.Copy(patches, c.ConfigPatches)
	for file, values := range p.ConfigPatches {
		patches[file] = merged(patches[file], values)
	}
	c.ConfigPatches = patches
}

// inheritHidden returns the visibility of the group's own and inherited values.
func inheritHidden(g fleet.Group, parent *fleet.Group) map[string]content.Visibility {
	out := maps.Clone(g.Hidden)
	for key, v := range parent.Hidden {
		value, has := parent.Spec.Variables[key]
		if _, own := g.Spec.Variables[key]; own || !has || content.IsSealed(value) {
			continue
		}
		if out == nil {
			out = map[string]content.Visibility{}
		}
		out[key] = v
	}
	return out
}

// unsealed returns the values that are not sealed.
func unsealed(values map[string]string) map[string]string {
	out := maps.Clone(values)
	maps.DeleteFunc(out, func(_, value string) bool { return content.IsSealed(value) })
	return out
}

// merged returns the group's own values plus the parent's values under other keys.
func merged[V any](own, parents map[string]V) map[string]V {
	if len(parents) == 0 {
		return own
	}
	out := maps.Clone(parents)
	maps.Copy(out, own)
	return out
}
