package compose

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// defining returns a template head that defines variables.
func defining(ref string, all ...content.Variable) content.TemplateHead {
	h := heads(ref)[0]
	h.Variables = all
	return h
}

func variable(key string, t content.VariableType, s content.VariableScope, value ...string) content.Variable {
	v := content.Variable{Key: key, Type: t, Scope: s, Required: true}
	if len(value) > 0 {
		v.Default = &value[0]
	}
	return v
}

func TestResolveVariables(t *testing.T) {
	all := []content.TemplateHead{
		defining("g/low", variable("A", content.VariableString, content.ScopeGroup, "low"), variable("B", content.VariableInt, content.ScopeInstance), variable("F", content.VariableString, content.ScopeTemplate, "fixed")),
		defining("g/top", variable("A", content.VariableString, content.ScopeGroup, "top"), variable("S", content.VariableSecret, content.ScopeGroup, "env:S"), content.Variable{Key: "O", Type: content.VariableString, Scope: content.ScopeGroup}),
	}
	spec := fleet.GroupSpec{Templates: content.TemplateSelection{Override: true, AllInGroups: []string{"g"}}}
	cases := []struct {
		rule    string
		group   map[string]string
		want    map[string]string
		missing []string
		secret  string
	}{
		{"defaults, the later layer's", nil, map[string]string{"A": "top", "F": "fixed"}, []string{"B"}, "env:S"},
		{"the group's value wins", map[string]string{"A": "mine", "B": "1"}, map[string]string{"A": "mine", "B": "1", "F": "fixed"}, nil, "env:S"},
		{"but not over the template's own", map[string]string{"F": "mine"}, map[string]string{"A": "top", "F": "fixed"}, []string{"B"}, "env:S"},
		{"a secret's reference is no value", map[string]string{"S": "secret:x"}, map[string]string{"A": "top", "F": "fixed"}, []string{"B"}, "secret:x"},
		{"what the group says of a secret in clear stays out", map[string]string{"S": "hunter2"}, map[string]string{"A": "top", "F": "fixed"}, []string{"B", "S"}, ""},
		{"what was sealed and is defined no more stays out", map[string]string{"X": "sealed:eA"}, map[string]string{"A": "top", "F": "fixed"}, []string{"B"}, "env:S"},
		{"what nobody defines is free", map[string]string{"X": "y"}, map[string]string{"A": "top", "F": "fixed", "X": "y"}, []string{"B"}, "env:S"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			spec.Variables = c.group
			p := Compose(fleet.Group{Spec: spec}, Materials{Heads: all}, 0)
			if diff := cmp.Diff(c.want, p.Variables); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(map[string]string{"S": c.secret}, p.Secrets); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.missing, p.Missing); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResolveIgnoresBuiltInDefinitions(t *testing.T) {
	all := []content.TemplateHead{defining("g/t",
		variable("PORT", content.VariableString, content.ScopeGroup, "1"), variable("PORT_QUERY", content.VariableString, content.ScopeGroup, "1"),
		variable("GROUP", content.VariableSecret, content.ScopeGroup), variable("MEMORY", content.VariableInt, content.ScopeTemplate, "1"), variable("A", content.VariableString, content.ScopeGroup, "1"),
	)}
	spec := fleet.GroupSpec{Templates: content.TemplateSelection{AllInGroups: []string{"g"}}, Variables: map[string]string{"MEMORY": "2", "GROUP": "sealed:eA"}}
	p := Compose(fleet.Group{Spec: spec}, Materials{Heads: all}, 0)
	if diff := cmp.Diff(map[string]string{"A": "1", "MEMORY": "2"}, p.Variables); diff != "" {
		t.Error(diff)
	}
	if len(p.Secrets)+len(p.Missing) > 0 {
		t.Errorf("secrets %v, missing %v", p.Secrets, p.Missing)
	}
}

func TestPlanRecordsVisibilities(t *testing.T) {
	hidden := func(key string, v content.Visibility) content.Variable {
		return content.Variable{Key: key, Type: content.VariableString, Scope: content.ScopeGroup, Visibility: string(v)}
	}
	all := []content.TemplateHead{
		defining("g/low", hidden("A", content.VisibleToAdmins), hidden("B", content.VisibleToOperators), variable("W", content.VariableSecret, content.ScopeGroup)),
		defining("g/top", hidden("A", content.VisibleToAll), hidden("B", content.VisibleToAdmins), variable("S", content.VariableSecret, content.ScopeGroup), hidden("W", content.VisibleToAll), hidden("O", content.VisibleToAll)),
	}
	g := fleet.Group{
		Hidden: map[string]content.Visibility{"O": content.VisibleToOperators, "S": content.VisibleToNobody, "X": content.VisibleToAdmins},
		Spec:   fleet.GroupSpec{Templates: content.TemplateSelection{Override: true, AllInGroups: []string{"g"}}},
	}
	p := Compose(g, Materials{Heads: all}, 0)
	want := map[string]content.Visibility{"A": content.VisibleToAdmins, "B": content.VisibleToAdmins, "O": content.VisibleToOperators, "W": content.VisibleToNobody, "X": content.VisibleToAdmins}
	if diff := cmp.Diff(want, p.Hidden); diff != "" {
		t.Error(diff)
	}
	shown := p
	shown.Hidden = nil
	if p.CompositionDigest() != shown.CompositionDigest() || p.Digest() == shown.Digest() {
		t.Error("who is shown the values makes another instance, or the same plan")
	}
}
