package compose

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// KeepsDefinitions returns nil if next contains, unchanged, each definition of present that is
// hidden from a viewer who may see values up to most. Otherwise it returns a Denied error that
// names the first one. A changed definition could lose the value, reveal it, or let the viewer
// guess it from validation errors. Everyone who may change the template
// may also change definitions of secrets, because no user may see their values.
func KeepsDefinitions(present, next []content.Variable, most content.Visibility) error {
	for _, old := range present {
		if old.Shown() == content.VisibleToNobody || !old.Shown().HiddenFrom(most) {
			continue
		}
		if !slices.ContainsFunc(next, func(v content.Variable) bool { return reflect.DeepEqual(v, old) }) {
			return &errs.Error{Kind: errs.Denied, Field: old.Key, Message: "is a variable whose value you may not see: only users who may see it can change, rename or remove its definition"}
		}
	}
	return nil
}

// Definers is the set of templates that define variables. It is safe for concurrent use.
type Definers struct {
	heads []content.TemplateHead
	index templateIndex
	by    map[content.TemplateRef][]content.Variable
}

// NewDefiners returns the templates among heads that define variables.
func NewDefiners(heads []content.TemplateHead) Definers {
	d := Definers{by: map[content.TemplateRef][]content.Variable{}}
	for _, h := range heads {
		if len(h.Variables) > 0 {
			d.heads = append(d.heads, h)
			d.by[h.TemplateRef] = h.Variables
		}
	}
	d.index = indexTemplates(d.heads)
	return d
}

// Definition is the set of definitions that a group's templates have for one variable.
type Definition struct {
	// All are the definitions of all templates that an instance of the group may use.
	All []content.Variable
	// Sure is the effective definition if it does not depend on randomly selected templates,
	// otherwise nil.
	Sure *content.Variable
}

// Secret reports whether any template defines the variable as a secret.
func (d Definition) Secret() bool {
	return slices.ContainsFunc(d.All, func(v content.Variable) bool { return v.Type == content.VariableSecret })
}

// StoredSecrets returns the references to stored secrets that instances of a group may get, by variable:
// that of the group's value, or else those of the templates' defaults.
func StoredSecrets(s fleet.GroupSpec, defined map[string]Definition) map[string][]content.SecretRef {
	out := map[string][]content.SecretRef{}
	note := func(key, value string) {
		if ref, err := content.ParseSecretRef(value); err == nil && ref.Kind == content.SecretStored {
			out[key] = append(out[key], ref)
		}
	}
	for key, d := range defined {
		if value, ok := s.Variables[key]; ok && d.Secret() {
			note(key, value)
			continue
		}
		for _, v := range d.All {
			if v.Type == content.VariableSecret && v.Default != nil {
				note(key, *v.Default)
			}
		}
	}
	return out
}

// Of returns the variables that the templates of a group define, by key.
func (d Definers) Of(name fleet.GroupName, s fleet.GroupSpec) map[string]Definition {
	out := map[string]Definition{}
	if len(d.heads) == 0 {
		return out
	}
	always := s
	always.Templates.OneOf, always.Templates.OneInGroups = nil, nil
	layers := withAuto(fleet.Group{Name: name, Spec: always}, d.index, layersOf(always.Templates, d.index, 0))
	for _, l := range layers {
		for _, v := range d.by[l.TemplateRef] {
			of := out[v.Key]
			of.All, of.Sure = append(of.All, v), &v
			out[v.Key] = of
		}
	}
	drawn := func(ref content.TemplateRef) {
		for _, v := range d.by[ref] {
			of := out[v.Key]
			of.All, of.Sure = append(of.All, v), nil
			out[v.Key] = of
		}
	}
	for _, l := range s.Templates.OneOf {
		drawn(l.TemplateRef)
	}
	if len(s.Templates.OneInGroups) == 0 {
		return out
	}
	for _, h := range d.heads {
		if slices.Contains(s.Templates.OneInGroups, h.Group) {
			drawn(h.TemplateRef)
		}
	}
	return out
}

// Conceal returns the visibility of each value of the group that is not visible to all. It is the
// strictest of the templates' current definitions and of g.Hidden, so a value does
// not become visible when its definition is relaxed or removed.
func Conceal(g *fleet.Group, defined map[string]Definition) map[string]content.Visibility {
	out := map[string]content.Visibility{}
	hide := func(key string, v content.Visibility) {
		if v.HiddenFrom(out[key]) {
			out[key] = v
		}
	}
	for key, of := range defined {
		for _, v := range of.All {
			hide(key, v.Shown())
		}
	}
	for key, v := range g.Hidden {
		hide(key, v)
	}
	for key, value := range g.Spec.Variables {
		if content.IsSealed(value) {
			hide(key, content.VisibleToNobody)
		}
	}
	return out
}

// MaskValues returns values with Hidden in place of each value that a viewer who may see values up
// to most may not see.
func MaskValues(values map[string]string, hidden map[string]content.Visibility, most content.Visibility) map[string]string {
	out := maps.Clone(values)
	for key, value := range values {
		if hidden[key].HiddenFrom(most) || content.IsSealed(value) {
			out[key] = content.Hidden
		}
	}
	return out
}

// CheckVariables checks a group's values against its templates' definitions. It returns an Invalid
// error below variableValues for each value that a group may not set, that fits no definition, or
// that is required, missing and can only come from the group. Secrets must already be references.
func CheckVariables(s fleet.GroupSpec, defined map[string]Definition) []error {
	var p validate.Problems
	for _, key := range slices.Sorted(maps.Keys(defined)) {
		of, field := defined[key], "variableValues."+key
		value, given := s.Variables[key]
		switch {
		case given && !of.allows(content.ScopeGroup):
			p.Check(false, field, "can only be set by the template (scope TEMPLATE): remove it")
		case given:
			if err := of.check(value, content.Variable.Check); err != nil {
				p.Check(false, field, "%s", errs.MessageOf(err))
			}
		case of.Sure != nil && of.Sure.Required && of.Sure.Default == nil && of.Sure.Scope == content.ScopeGroup:
			p.Check(false, field, "is missing: a template of the group requires it")
		}
	}
	return p.List
}

// CheckStartValues checks values given when instances are started. It returns an Invalid error
// below variables for each value that is built in, that no template declares with scope INSTANCE,
// that fits no definition, or that is required and missing. fresh is true for instances that have
// no values yet.
func CheckStartValues(s fleet.GroupSpec, defined map[string]Definition, values map[string]string, fresh bool) []error {
	var p validate.Problems
	for _, key := range slices.Sorted(maps.Keys(values)) {
		of, field := defined[key], "variables."+key
		switch {
		case configfile.BuiltIn(key):
			p.Check(false, field, "is built in and set for every instance: remove it")
		case len(of.All) == 0:
			p.Check(false, field, "cannot be set at start: no template of the group declares it; declare it in a template with scope INSTANCE")
		case of.startScope() != content.ScopeInstance:
			p.Check(false, field, "cannot be set at start: a template of the group declares it with scope %s, not INSTANCE", of.startScope())
		default:
			if err := of.counting().check(values[key], content.Variable.CheckStart); err != nil {
				p.Check(false, field, "%s", errs.MessageOf(err))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(defined)) {
		of := defined[key]
		_, given := values[key]
		_, byGroup := s.Variables[key]
		missing := fresh && !given && !byGroup && of.Sure != nil && of.Sure.Required && of.Sure.Default == nil
		p.Check(!missing, "variables."+key, "is missing: a template of the group requires it, and the group does not set it")
	}
	return p.List
}

// counting returns d with only the definitions that may become effective.
func (d Definition) counting() Definition {
	if d.Sure != nil {
		d.All = []content.Variable{*d.Sure}
	}
	return d
}

// startScope returns ScopeInstance if the variable may be set at start for every selection of
// templates, otherwise the scope that forbids it.
func (d Definition) startScope() content.VariableScope {
	for _, v := range d.counting().All {
		if v.Scope != content.ScopeInstance {
			return v.Scope
		}
	}
	return content.ScopeInstance
}

// CheckKnown returns an Invalid error below field for each new key of given that no template
// defines and that is not built in. Keys in before are not new. If the group's templates define no
// variables, every key is accepted.
func CheckKnown(defined map[string]Definition, given, before map[string]string, field string) []error {
	var p validate.Problems
	if len(defined) == 0 {
		return nil
	}
	known := slices.Sorted(maps.Keys(defined))
	names := strings.Join(known[:min(len(known), 20)], ", ")
	for _, key := range slices.Sorted(maps.Keys(given)) {
		_, is := defined[key]
		_, was := before[key]
		p.Check(is || was || configfile.BuiltIn(key), field+"."+key, "is not defined by the group's templates, which define %s: use one of these, or define it in a template", names)
	}
	return p.List
}

// allows reports whether a definition permits a value of scope where.
func (d Definition) allows(where content.VariableScope) bool {
	return slices.ContainsFunc(d.All, func(v content.Variable) bool {
		return v.Scope == content.ScopeInstance || v.Scope == where
	})
}

// check returns nil if the value fits one of the definitions, otherwise the last error.
func (d Definition) check(value string, fits func(content.Variable, string) error) (err error) {
	for _, v := range d.All {
		if err = fits(v, value); err == nil {
			return nil
		}
	}
	return err
}
