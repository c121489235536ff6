package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
)

func fieldsOfErrors(all []error) (fields []string) {
	for _, err := range all {
		if !errs.Is(err, errs.Invalid) {
			fields = append(fields, fmt.Sprintf("%v is of another kind", err))
		}
		fields = append(fields, errs.FieldOf(err))
	}
	return fields
}

func TestAGroupsValuesAreHeldToItsTemplates(t *testing.T) {
	fixed := variable("FIXED", VariableString, ScopeTemplate, "x")
	heads := []TemplateHead{
		defining("g/a", variable("N", VariableInt, ScopeGroup), variable("I", VariableBool, ScopeInstance), fixed,
			variable("S", VariableSecret, ScopeGroup), variable("D", VariableEnum, ScopeGroup, "a")),
		defining("g/b", variable("N", VariableBool, ScopeGroup), variable("ONLY_B", VariableInt, ScopeGroup)),
	}
	ref := func(name string) TemplateLayer {
		return TemplateLayer{TemplateRef: TemplateRef{Group: "g", Name: name}}
	}
	sure := TemplateSelection{AllOf: []TemplateLayer{ref("a")}}
	drawn := TemplateSelection{AllOf: []TemplateLayer{ref("a")}, OneOf: []TemplateLayer{ref("b"), ref("none")}}
	fine := func(more ...string) map[string]string {
		m := map[string]string{"N": "1", "S": "secret:s"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for _, c := range []struct {
		rule   string
		of     TemplateSelection
		values map[string]string
		want   []string
	}{
		{"all that is required, and what nobody defines", sure, fine("FREE", "x"), nil},
		{"what is required and only the group may give is missing", sure, nil, []string{"variableValues.N", "variableValues.S"}},
		{"a value that is none of the type", sure, fine("N", "one"), []string{"variableValues.N"}},
		{"an instance's value may be the group's too", sure, fine("I", "true"), nil},
		{"and is held to its type", sure, fine("I", "1"), []string{"variableValues.I"}},
		{"the template's own is nobody else's", sure, fine("FIXED", "x"), []string{"variableValues.FIXED"}},
		{"a secret is a reference", sure, fine("S", "hunter2"), []string{"variableValues.S"}},
		{"what is drawn may define it otherwise", drawn, fine("N", "true"), nil},
		{"but some way", drawn, fine("N", "one"), []string{"variableValues.N"}},
		{"what only a drawn one requires may be missing", drawn, fine(), nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := GroupSpec{Templates: c.of, Variables: c.values}
			if diff := cmp.Diff(c.want, fieldsOfErrors(s.CheckVariables(NewDefiners(heads).Of("lobby", s)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAStartsValuesAreHeldToTheTemplates(t *testing.T) {
	heads := []TemplateHead{
		defining("g/a", variable("G", VariableString, ScopeGroup), variable("I", VariableInt, ScopeInstance), variable("T", VariableText, ScopeInstance, ""),
			variable("S", VariableString, ScopeInstance, ""), variable("TWICE", VariableInt, ScopeInstance, "1")),
		defining("g/b", variable("TWICE", VariableString, ScopeInstance, "")),
		defining("h/c", variable("DRAWN", VariableString, ScopeInstance)), defining("h/d", variable("DRAWN", VariableString, ScopeGroup)),
	}
	s := GroupSpec{Templates: TemplateSelection{AllInGroups: []string{"g"}, OneInGroups: []string{"h"}}, Variables: map[string]string{"G": "x"}}
	for _, c := range []struct {
		rule   string
		values map[string]string
		fresh  bool
		want   []string
	}{
		{"what it has to bring", map[string]string{"I": "1", "S": "$(id) '%"}, true, nil},
		{"one that nobody declares", map[string]string{"I": "1", "FREE": "x"}, true, []string{"variables.FREE"}},
		{"one that is built in", map[string]string{"I": "1", "PORT": "1", "PORT_A": "1"}, true, []string{"variables.PORT", "variables.PORT_A"}},
		{"one that may be the group's, as it is drawn", map[string]string{"I": "1", "DRAWN": "x"}, true, []string{"variables.DRAWN"}},
		{"only the definition that counts does", map[string]string{"I": "1", "TWICE": "x"}, true, []string{"variables.TWICE"}},
		{"a text has lines", map[string]string{"I": "1", "T": "a\nb\tc"}, true, nil},
		{"and no other control characters", map[string]string{"I": "1", "T": "a\x1bb"}, true, []string{"variables.T"}},
		{"a string has no lines", map[string]string{"I": "1", "S": "a\nb"}, true, []string{"variables.S"}},
		{"is missing", nil, true, []string{"variables.I"}},
		{"one that has run has its own", nil, false, nil},
		{"the group's is not its", map[string]string{"I": "1", "G": "y"}, true, []string{"variables.G"}},
		{"none of the type", map[string]string{"I": "x"}, true, []string{"variables.I"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if diff := cmp.Diff(c.want, fieldsOfErrors(s.CheckStartValues(NewDefiners(heads).Of("lobby", s), c.values, c.fresh))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatWasHiddenStaysHidden(t *testing.T) {
	admin, operator := variable("A", VariableString, ScopeGroup), variable("O", VariableString, ScopeGroup)
	admin.Visibility, operator.Visibility = "ADMIN", "OPERATOR"
	heads := []TemplateHead{defining("g/a", admin, operator, variable("S", VariableSecret, ScopeGroup), variable("P", VariableString, ScopeGroup))}
	g := Group{Name: "lobby", Spec: GroupSpec{
		Templates: TemplateSelection{AllInGroups: []string{"g"}},
		Variables: map[string]string{"A": "a", "O": "o", "S": "secret:s", "P": "p", "F": "f", "OLD": "sealed:x"},
	}}
	defined := NewDefiners(heads).Of(g.Name, g.Spec)
	for most, want := range map[Visibility]map[string]string{
		VisibleToAll:       {"A": Hidden, "O": Hidden, "S": Hidden, "P": "p", "F": "f", "OLD": Hidden},
		VisibleToOperators: {"A": Hidden, "O": "o", "S": Hidden, "P": "p", "F": "f", "OLD": Hidden},
		VisibleToAdmins:    {"A": "a", "O": "o", "S": Hidden, "P": "p", "F": "f", "OLD": Hidden},
	} {
		if diff := cmp.Diff(want, MaskValues(g.Spec.Variables, g.Conceal(defined), most)); diff != "" {
			t.Errorf("shown to %q: %s", most, diff)
		}
	}
	before := g.Conceal(defined)
	g.Hidden = map[string]Visibility{"A": VisibleToAdmins, "O": VisibleToOperators, "S": VisibleToNobody}
	g.Spec.Templates = TemplateSelection{}
	if diff := cmp.Diff(before, g.Conceal(NewDefiners(heads).Of(g.Name, g.Spec))); diff != "" {
		t.Errorf("without the template: %s", diff)
	}
}

func TestValuesThatNoTemplateDefinesAreToldWhereOneDefinesAny(t *testing.T) {
	defined := map[string]Definition{"slots": {}, "motd": {}}
	before := map[string]string{"old": "1"}
	given := map[string]string{"slots": "1", "slotss": "1", "old": "2", "PORT": "1"}
	problems := CheckKnown(defined, given, before, "variableValues")
	if len(problems) != 1 || errs.FieldOf(problems[0]) != "variableValues.slotss" || !strings.Contains(problems[0].Error(), "motd, slots") {
		t.Errorf("got %v", problems)
	}
	if problems := CheckKnown(nil, given, nil, "variableValues"); len(problems) > 0 {
		t.Errorf("without definitions %v", problems)
	}
}
