package fleet

import (
	"encoding/json"
	"maps"
)

// MaxAncestors bounds a chain of parents.
const MaxAncestors = 10

// Ancestors are a group's parent, that one's, and so on, as far as there are any: not one
// twice, nor more than MaxAncestors, which no gateway writes but several at once might.
func Ancestors(g *Group, of func(GroupName) (*Group, bool)) []*Group {
	var out []*Group
	seen := map[GroupName]bool{g.Name: true}
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

// Inherit is a group as its instances are made, with what it has of its ancestors, the
// nearest first. Only what an instance is made of is inherited: a list of which the group has
// none itself; and of environment, variables and patches by file and path each that it has
// not itself; but a value that is sealed is its group's alone. What has one value is always the group's own, also where that is the default;
// and so are files that are modified or merged, labels, and what orders and counts groups.
func Inherit(g Group, ancestors []*Group) Group {
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
		s.Composition.inherit(p.Composition)
		g.Hidden = inheritHidden(g, a)
		s.Env = merged(s.Env, p.Env)
		s.Variables = merged(s.Variables, unsealed(p.Variables))
	}
	return g
}

func (c *Composition) inherit(p Composition) {
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

// inheritHidden is who is shown the values of a group that it has itself or of a parent.
func inheritHidden(g Group, parent *Group) map[string]Visibility {
	out := maps.Clone(g.Hidden)
	for key, v := range parent.Hidden {
		value, has := parent.Spec.Variables[key]
		if _, own := g.Spec.Variables[key]; own || !has || IsSealed(value) {
			continue
		}
		if out == nil {
			out = map[string]Visibility{}
		}
		out[key] = v
	}
	return out
}

// unsealed are the values that others may have too.
func unsealed(values map[string]string) map[string]string {
	out := maps.Clone(values)
	maps.DeleteFunc(out, func(_, value string) bool { return IsSealed(value) })
	return out
}

// list takes a parent's list where there is none.
func list[T any](own *[]T, parents []T) {
	if len(*own) == 0 {
		*own = parents
	}
}

// merged are a group's own values, and of its parent those under other keys.
func merged[V any](own, parents map[string]V) map[string]V {
	if len(parents) == 0 {
		return own
	}
	out := maps.Clone(parents)
	maps.Copy(out, own)
	return out
}
