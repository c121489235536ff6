package compose

import (
	"encoding/json"
	"maps"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
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

// Inherit returns the group with the values it inherits from its ancestors, nearest first. It
// affects only what instances are built from. A list is inherited if the group's own is empty.
// Environment, variables and config patches are inherited key by key, except sealed values. Single
// values are never inherited, even if they have their default. FileModifications, MergeFiles,
// labels, and the fields that order and count groups are not inherited either.
func Inherit(g fleet.Group, ancestors []*fleet.Group) fleet.Group {
	s := &g.Spec
	for _, a := range ancestors {
		p := a.Spec
		list(&s.Software.JVMArgs, p.Software.JVMArgs)
		list(&s.AdditionalPorts, p.AdditionalPorts)
		list(&s.Where.Nodes, p.Where.Nodes)
		list(&s.Where.Affinity, p.Where.Affinity)
		list(&s.Where.AntiAffinity, p.Where.AntiAffinity)
		list(&s.Where.Prefer, p.Where.Prefer)
		list(&s.Templates.AllOf, p.Templates.AllOf)
		list(&s.Templates.AllInGroups, p.Templates.AllInGroups)
		list(&s.Templates.OneOf, p.Templates.OneOf)
		list(&s.Templates.OneInGroups, p.Templates.OneInGroups)
		list(&s.ConfigRules, p.ConfigRules)
		list(&s.InstanceGroups, p.InstanceGroups)
		list(&s.Static.ProtectedPaths, p.Static.ProtectedPaths)
		inheritComposition(&s.Composition, p.Composition)
		g.Hidden = inheritHidden(g, a)
		s.Env = merged(s.Env, p.Env)
		s.Variables = merged(s.Variables, unsealed(p.Variables))
	}
	return g
}

func inheritComposition(c *fleet.Composition, p fleet.Composition) {
	list(&c.AttachedModules, p.AttachedModules)
	list(&c.EnabledModules, p.EnabledModules)
	list(&c.DisabledModules, p.DisabledModules)
	list(&c.AttachedExtensions, p.AttachedExtensions)
	list(&c.EnabledExtensions, p.EnabledExtensions)
	list(&c.DisabledExtensions, p.DisabledExtensions)
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

// list sets *own to the parent's list if it is empty.
func list[T any](own *[]T, parents []T) {
	if len(*own) == 0 {
		*own = parents
	}
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
