package fleet

import (
	"iter"
	"maps"
	"slices"
)

// Definitions are the variables that the layers of a plan define, as far as heads are
// of the same version; of one that several define the last layer's counts.
func Definitions(layers []PlanLayer, heads []TemplateHead) map[string]Variable {
	out := map[string]Variable{}
	for v := range definedBy(layers, heads) {
		out[v.Key] = v
	}
	return out
}

// definedBy yields every definition of the layers' versions, as far as heads are of them.
func definedBy(layers []PlanLayer, heads []TemplateHead) iter.Seq[Variable] {
	return func(yield func(Variable) bool) {
		for _, l := range layers {
			i := slices.IndexFunc(heads, func(h TemplateHead) bool { return h.TemplateRef == l.TemplateRef && h.Digest == l.Digest })
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

// hiddenIn is who is shown the values of a plan that not everybody is: of one that several
// layers define, as the strictest of them says, and no less than the group had it before.
func hiddenIn(layers []PlanLayer, heads []TemplateHead, before map[string]Visibility, secrets map[string]string) map[string]Visibility {
	var out map[string]Visibility
	hide := func(key string, v Visibility) {
		if _, secret := secrets[key]; secret || !v.HiddenFrom(out[key]) {
			return
		}
		if out == nil {
			out = map[string]Visibility{}
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

// resolved is what a plan says of its variables.
type resolved struct {
	values  map[string]string
	secrets map[string]string
	missing []string
}

// resolve gives the variables their values: the template's default, and over it the
// group's where the variable's scope allows one. missing are the required ones that are
// left without, in order; a value given at start may still fill those of scope INSTANCE.
//
// Those of type SECRET get references, which are no values and must not be taken for
// some; "" where nobody gives one yet. What the group gives in clear, from before the
// template said that it is a secret, is not taken over, and counts as missing. Definitions
// from before what is built in was refused do not count.
func resolve(defined map[string]Variable, group map[string]string) resolved {
	r := resolved{values: maps.Clone(group)}
	for _, key := range slices.Sorted(maps.Keys(defined)) {
		v := defined[key]
		if BuiltIn(key) {
			continue
		}
		value, given := group[key]
		if !given || v.Scope == ScopeTemplate {
			value, given = "", v.Default != nil
			if given {
				value = *v.Default
			}
		}
		if v.Type == VariableSecret {
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
	for key, value := range r.values { // of a variable that was a secret, and that nobody defines any more
		if IsSealed(value) {
			delete(r.values, key)
		}
	}
	return r
}

func (r *resolved) secret(v Variable, value string, given bool) {
	delete(r.values, v.Key)
	if r.secrets == nil {
		r.secrets = map[string]string{}
	}
	r.secrets[v.Key] = ""
	if _, err := ParseSecretRef(value); given && err == nil {
		r.secrets[v.Key] = value
	} else if given || v.Required {
		r.missing = append(r.missing, v.Key)
	}
}
