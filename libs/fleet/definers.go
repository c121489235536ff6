package fleet

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// Visibility is who is shown the value of a variable.
type Visibility string

// The visibilities, from everybody to nobody.
const (
	VisibleToAll       Visibility = ""
	VisibleToOperators Visibility = "OPERATOR"
	VisibleToAdmins    Visibility = "ADMIN"
	VisibleToNobody    Visibility = "SECRET"
)

var visibilities = []Visibility{VisibleToAll, VisibleToOperators, VisibleToAdmins, VisibleToNobody}

// HiddenFrom reports whether a value is hidden from who is shown those of v at most.
func (v Visibility) HiddenFrom(most Visibility) bool {
	return slices.Index(visibilities, v) > slices.Index(visibilities, most)
}

// Shown is who is shown the variable's value.
func (v Variable) Shown() Visibility {
	if v.Type == VariableSecret {
		return VisibleToNobody
	}
	return Visibility(v.Visibility)
}

// KeepsDefinitions is nil when next has, unchanged, every definition of present whose value
// is hidden from who is shown those of most. Denied, naming the first, when not: the value
// would be lost, be shown once nothing hides it, or be found out by the bounds it keeps.
// Those of secrets, whose values nobody is shown, are for everybody who may change the template.
func KeepsDefinitions(present, next []Variable, most Visibility) error {
	for _, old := range present {
		if old.Shown() == VisibleToNobody || !old.Shown().HiddenFrom(most) {
			continue
		}
		if !slices.ContainsFunc(next, func(v Variable) bool { return reflect.DeepEqual(v, old) }) {
			return &errs.Error{Kind: errs.Denied, Field: old.Key, Message: "is a variable whose value you are not shown: changing, renaming or removing its definition is for those who are"}
		}
	}
	return nil
}

// Definers are the templates that define variables, as their heads do now. They may be
// used by several at once.
type Definers struct {
	heads []TemplateHead
	there shelf
	by    map[TemplateRef][]Variable
}

// NewDefiners takes those of heads that define any.
func NewDefiners(heads []TemplateHead) Definers {
	d := Definers{by: map[TemplateRef][]Variable{}}
	for _, h := range heads {
		if len(h.Variables) > 0 {
			d.heads = append(d.heads, h)
			d.by[h.TemplateRef] = h.Variables
		}
	}
	d.there = shelve(d.heads)
	return d
}

// Definition is how the templates of a group define one variable.
type Definition struct {
	// All are the definitions of every template the group may be built of.
	All []Variable
	// Sure is the one that counts whatever is drawn; nil when that depends.
	Sure *Variable
}

// Secret reports whether any template says that it is one.
func (d Definition) Secret() bool {
	return slices.ContainsFunc(d.All, func(v Variable) bool { return v.Type == VariableSecret })
}

// Of are the variables that the templates of a group define.
func (d Definers) Of(name GroupName, s GroupSpec) map[string]Definition {
	out := map[string]Definition{}
	if len(d.heads) == 0 {
		return out
	}
	always := s
	always.Templates.OneOf, always.Templates.OneInGroups = nil, nil
	layers := withAuto(Group{Name: name, Spec: always}, d.there, always.Templates.layers(d.there, 0))
	for _, l := range layers {
		for _, v := range d.by[l.TemplateRef] {
			of := out[v.Key]
			of.All, of.Sure = append(of.All, v), &v
			out[v.Key] = of
		}
	}
	drawn := func(ref TemplateRef) {
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

// Conceal is who is shown each of a group's values that not everybody is: as its templates
// define it now or, where it was hidden before and is so less or no more defined, as it was.
func (g Group) Conceal(defined map[string]Definition) map[string]Visibility {
	out := map[string]Visibility{}
	hide := func(key string, v Visibility) {
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
		if IsSealed(value) {
			hide(key, VisibleToNobody)
		}
	}
	return out
}

// MaskValues are values with Hidden in place of those that are hidden from who is shown
// those of most.
func MaskValues(values map[string]string, hidden map[string]Visibility, most Visibility) map[string]string {
	out := maps.Clone(values)
	for key, value := range values {
		if hidden[key].HiddenFrom(most) || IsSealed(value) {
			out[key] = Hidden
		}
	}
	return out
}

// CheckVariables tells what is wrong with a group's values as its templates define them:
// one that is not the group's to give, that fits no definition, or that is required and
// that nobody else may give. Each error is Invalid and names a field below
// variableValues. Secrets have to be references already.
func (s GroupSpec) CheckVariables(defined map[string]Definition) []error {
	var p problems
	for _, key := range slices.Sorted(maps.Keys(defined)) {
		of, field := defined[key], "variableValues."+key
		value, given := s.Variables[key]
		switch {
		case given && !of.allows(ScopeGroup):
			p.check(false, field, "is given by the template alone (scope TEMPLATE): leave it out")
		case given:
			if err := of.check(value, Variable.Check); err != nil {
				p.check(false, field, "%s", errs.MessageOf(err))
			}
		case of.Sure != nil && of.Sure.Required && of.Sure.Default == nil && of.Sure.Scope == ScopeGroup:
			p.check(false, field, "is missing: a template of the group requires it")
		}
	}
	return p.list
}

// CheckStartValues tells what is wrong with values that are given when instances are
// started: one that is built in, one that no template declares with scope INSTANCE, one
// that fits no definition, or one that is required and missing. The fields are below
// variables. fresh are instances that have none yet.
func (s GroupSpec) CheckStartValues(defined map[string]Definition, values map[string]string, fresh bool) []error {
	var p problems
	for _, key := range slices.Sorted(maps.Keys(values)) {
		of, field := defined[key], "variables."+key
		switch {
		case BuiltIn(key):
			p.check(false, field, "is built in, and every instance has its own: leave it out")
		case len(of.All) == 0:
			p.check(false, field, "cannot be given at a start: no template of the group declares it; have one declare it with scope INSTANCE")
		case of.startScope() != ScopeInstance:
			p.check(false, field, "cannot be given at a start: a template of the group declares it with scope %s, not INSTANCE", of.startScope())
		default:
			if err := of.counting().check(values[key], Variable.CheckStart); err != nil {
				p.check(false, field, "%s", errs.MessageOf(err))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(defined)) {
		of := defined[key]
		_, given := values[key]
		_, byGroup := s.Variables[key]
		missing := fresh && !given && !byGroup && of.Sure != nil && of.Sure.Required && of.Sure.Default == nil
		p.check(!missing, "variables."+key, "is missing: a template of the group requires it, and the group does not give it")
	}
	return p.list
}

// counting has only the definitions that may count.
func (d Definition) counting() Definition {
	if d.Sure != nil {
		d.All = []Variable{*d.Sure}
	}
	return d
}

// startScope is ScopeInstance when the variable may be given at start whatever is drawn,
// else the scope that forbids it.
func (d Definition) startScope() VariableScope {
	for _, v := range d.counting().All {
		if v.Scope != ScopeInstance {
			return v.Scope
		}
	}
	return ScopeInstance
}

// CheckKnown tells which of the values that are given, and were not before, no template
// defines, where the group's templates define any variable. Each error is Invalid, and
// names a field below field and the variables there are. What is built in is known.
func CheckKnown(defined map[string]Definition, given, before map[string]string, field string) []error {
	var p problems
	if len(defined) == 0 {
		return nil
	}
	known := slices.Sorted(maps.Keys(defined))
	told := strings.Join(known[:min(len(known), 20)], ", ")
	for _, key := range slices.Sorted(maps.Keys(given)) {
		_, is := defined[key]
		_, was := before[key]
		p.check(is || was || BuiltIn(key), field+"."+key, "is defined by none of the group's templates, which define %s: use one of these, or have a template define it", told)
	}
	return p.list
}

// allows reports whether any template lets a value be given there.
func (d Definition) allows(where VariableScope) bool {
	return slices.ContainsFunc(d.All, func(v Variable) bool {
		return v.Scope == ScopeInstance || v.Scope == where
	})
}

// check is nil when a value fits one of the definitions.
func (d Definition) check(value string, fits func(Variable, string) error) (err error) {
	for _, v := range d.All {
		if err = fits(v, value); err == nil {
			return nil
		}
	}
	return err
}
