package compose

import (
	"iter"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Definitions returns the variables defined by the layers of a plan, by key. It uses only heads
// with the layers' versions. If several layers define a variable, the last one wins.
func Definitions(layers []fleet.PlanLayer, heads []content.TemplateHead) map[string]content.Variable {
	out := map[string]content.Variable{}
	for v := range definedBy(layers, heads) {
		out[v.Key] = v
	}
	return out
}

// definedBy yields every definition of the layers' versions that heads contain.
func definedBy(layers []fleet.PlanLayer, heads []content.TemplateHead) iter.Seq[content.Variable] {
	return func(yield func(content.Variable) bool) {
		for _, l := range layers {
			i := slices.IndexFunc(heads, func(h content.TemplateHead) bool { return h.TemplateRef == l.TemplateRef && h.Digest == l.Digest })
			if i < 0 {
				continue
			}
			for _, v := range heads[i].Variables {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// hiddenIn returns the visibility of a plan's values that are not visible to all. It is the
// strictest of the layers' definitions and of before, the group's own record.
func hiddenIn(layers []fleet.PlanLayer, heads []content.TemplateHead, before map[string]content.Visibility, secrets map[string]string) map[string]content.Visibility {
	var out map[string]content.Visibility
	hide := func(key string, v content.Visibility) {
		if _, secret := secrets[key]; secret || !v.HiddenFrom(out[key]) {
			return
		}
		if out == nil {
			out = map[string]content.Visibility{}
		}
		out[key] = v
	}
	for key, v := range before {
		hide(key, v)
	}
	for v := range definedBy(layers, heads) {
		hide(v.Key, v.Shown())
	}
	return out
}

// resolved contains a plan's variables.
type resolved struct {
	values  map[string]string
	secrets map[string]string
	missing []string
}

// resolve determines the values of the variables: the template's default, overridden by the
// group's value if the scope allows it. missing lists the required variables without a value,
// sorted. A value given at start may still set those of scope INSTANCE.
//
// Secret variables get references instead, "" before the first value. A plain-text value, from
// before the template made the variable a secret, is not used and counts as missing. Definitions
// of built-in names, possible in older templates, are ignored.
func resolve(defined map[string]content.Variable, group map[string]string) resolved {
	r := resolved{values: maps.Clone(group)}
	for _, key := range slices.Sorted(maps.Keys(defined)) {
		v := defined[key]
		if configfile.BuiltIn(key) {
			continue
		}
		value, given := group[key]
		if !given || v.Scope == content.ScopeTemplate {
			value, given = "", v.Default != nil
			if given {
				value = *v.Default
			}
		}
		if v.Type == content.VariableSecret {
			r.secret(v, value, given)
			continue
		}
		if !given {
			delete(r.values, key)
			if v.Required {
				r.missing = append(r.missing, key)
			}
			continue
		}
		if r.values == nil {
			r.values = map[string]string{}
		}
		r.values[key] = value
	}
	for key, value := range r.values { // of a former secret that no template defines any more
		if content.IsSealed(value) {
			delete(r.values, key)
		}
	}
	return r
}

func (r *resolved) secret(v content.Variable, value string, given bool) {
	delete(r.values, v.Key)
	if r.secrets == nil {
		r.secrets = map[string]string{}
	}
	r.secrets[v.Key] = ""
	if _, err := content.ParseSecretRef(value); given && err == nil {
		r.secrets[v.Key] = value
	} else if given || v.Required {
		r.missing = append(r.missing, v.Key)
	}
}
