package fleet

import (
	"maps"
	"slices"
)

// Definitions are the variables that the layers of a plan define, as far as heads are
// of the same version; of one that several define the last layer's counts.
func Definitions(layers []PlanLayer, heads []TemplateHead) map[string]Variable {
	out := map[string]Variable{}
	for _, l := range layers {
		i := slices.IndexFunc(heads, func(h TemplateHead) bool { return h.TemplateRef == l.TemplateRef && h.Digest == l.Digest })
		if i < 0 {
			continue
		}
		for _, v := range heads[i].Variables {
			out[v.Key] = v
		}
	}
	return out
}

// resolve gives the variables their values: the template's default, and over it the
// group's where the variable's scope allows one. missing are the required ones that are
// left without, in order; a value given at start may still fill those of scope INSTANCE.
//
// Secrets get none here: a reference is no value, and must not be taken for one.
func resolve(defined map[string]Variable, group map[string]string) (values map[string]string, missing []string) {
	values = maps.Clone(group)
	for _, key := range slices.Sorted(maps.Keys(defined)) {
		v := defined[key]
		_, given := group[key]
		if v.Type == VariableSecret {
			delete(values, key)
			if v.Required {
				missing = append(missing, key)
			}
			continue
		}
		if given && v.Scope != ScopeTemplate {
			continue
		}
		if v.Default == nil {
			delete(values, key)
			if v.Required {
				missing = append(missing, key)
			}
			continue
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = *v.Default
	}
	return values, missing
}
