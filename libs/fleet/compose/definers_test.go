package compose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
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

func TestCheckVariables(t *testing.T) {
	fixed := variable("FIXED", content.VariableString, content.ScopeTemplate, "x")
	heads := []content.TemplateHead{
		defining("g/a", variable("N", content.VariableInt, content.ScopeGroup), variable("I", content.VariableBool, content.ScopeInstance), fixed,
			variable("S", content.VariableSecret, content.ScopeGroup), variable("D", content.VariableEnum, content.ScopeGroup, "a")),
		defining("g/b", variable("N", content.VariableBool, content.ScopeGroup), variable("ONLY_B", content.VariableInt, content.ScopeGroup)),
	}
	ref := func(name string) content.TemplateLayer {
		return content.TemplateLayer{TemplateRef: content.TemplateRef{Group: "g", Name: name}}
	}
	sure := content.TemplateSelection{AllOf: []content.TemplateLayer{ref("a")}}
	drawn := content.TemplateSelection{AllOf: []content.TemplateLayer{ref("a")}, OneOf: []content.TemplateLayer{ref("b"), ref("none")}}
	fine := func(more ...string) map[string]string {
		m := map[string]string{"N": "1", "S": "secret:s"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for _, c := range []struct {
		rule   string
		of     content.TemplateSelection
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
			s := fleet.GroupSpec{Templates: c.of, Variables: c.values}
			if diff := cmp.Diff(c.want, fieldsOfErrors(CheckVariables(s, NewDefiners(heads).Of("lobby", s)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheckStartValues(t *testing.T) {
	heads := []content.TemplateHead{
		defining("g/a", variable("G", content.VariableString, content.ScopeGroup), variable("I", content.VariableInt, content.ScopeInstance), variable("T", content.VariableText, content.ScopeInstance, ""),
			variable("S", content.VariableString, content.ScopeInstance, ""), variable("TWICE", content.VariableInt, content.ScopeInstance, "1")),
		defining("g/b", variable("TWICE", content.VariableString, content.ScopeInstance, "")),
		defining("h/c", variable("DRAWN", content.VariableString, content.ScopeInstance)), defining("h/d", variable("DRAWN", content.VariableString, content.ScopeGroup)),
	}
	s := fleet.GroupSpec{Templates: content.TemplateSelection{AllInGroups: []string{"g"}, OneInGroups: []string{"h"}}, Variables: map[string]string{"G": "x"}}
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
			if diff := cmp.Diff(c.want, fieldsOfErrors(CheckStartValues(s, NewDefiners(heads).Of("lobby", s), c.values, c.fresh))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHiddenValuesStayHidden(t *testing.T) {
	admin, operator := variable("A", content.VariableString, content.ScopeGroup), variable("O", content.VariableString, content.ScopeGroup)
	admin.Visibility, operator.Visibility = "ADMIN", "OPERATOR"
	heads := []content.TemplateHead{defining("g/a", admin, operator, variable("S", content.VariableSecret, content.ScopeGroup), variable("P", content.VariableString, content.ScopeGroup))}
	g := fleet.Group{Name: "lobby", Spec: fleet.GroupSpec{
		Templates: content.TemplateSelection{AllInGroups: []string{"g"}},
		Variables: map[string]string{"A": "a", "O": "o", "S": "secret:s", "P": "p", "F": "f", "OLD": "sealed:x"},
	}}
	defined := NewDefiners(heads).Of(g.Name, g.Spec)
	for most, want := range map[content.Visibility]map[string]string{
		content.VisibleToAll:       {"A": content.Hidden, "O": content.Hidden, "S": content.Hidden, "P": "p", "F": "f", "OLD": content.Hidden},
		content.VisibleToOperators: {"A": content.Hidden, "O": "o", "S": content.Hidden, "P": "p", "F": "f", "OLD": content.Hidden},
		content.VisibleToAdmins:    {"A": "a", "O": "o", "S": content.Hidden, "P": "p", "F": "f", "OLD": content.Hidden},
	} {
		if diff := cmp.Diff(want, MaskValues(g.Spec.Variables, Conceal(&g, defined), most)); diff != "" {
			t.Errorf("shown to %q: %s", most, diff)
		}
	}
	before := Conceal(&g, defined)
	g.Hidden = map[string]content.Visibility{"A": content.VisibleToAdmins, "O": content.VisibleToOperators, "S": content.VisibleToNobody}
	g.Spec.Templates = content.TemplateSelection{}
	if diff := cmp.Diff(before, Conceal(&g, NewDefiners(heads).Of(g.Name, g.Spec))); diff != "" {
		t.Errorf("without the template: %s", diff)
	}
}

func TestCheckKnownRejectsUndefinedVariables(t *testing.T) {
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
