package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// defining is a head that defines variables.
func defining(ref string, all ...Variable) TemplateHead {
	h := heads(ref)[0]
	h.Variables = all
	return h
}

func variable(key string, t VariableType, s VariableScope, value ...string) Variable {
	v := Variable{Key: key, Type: t, Scope: s, Required: true}
	if len(value) > 0 {
		v.Default = &value[0]
	}
	return v
}

func TestVariablesGetTheirValues(t *testing.T) {
	all := []TemplateHead{
		defining("g/low", variable("A", VariableString, ScopeGroup, "low"), variable("B", VariableInt, ScopeInstance), variable("F", VariableString, ScopeTemplate, "fixed")),
		defining("g/top", variable("A", VariableString, ScopeGroup, "top"), variable("S", VariableSecret, ScopeGroup, "env:S"), Variable{Key: "O", Type: VariableString, Scope: ScopeGroup}),
	}
	spec := GroupSpec{Templates: TemplateSelection{Override: true, AllInGroups: []string{"g"}}}
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
			p := Compose(Group{Spec: spec}, Materials{Heads: all}, 0)
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

func TestADefinitionOfWhatIsBuiltInDoesNotCount(t *testing.T) {
	all := []TemplateHead{defining("g/t",
		variable("PORT", VariableString, ScopeGroup, "1"), variable("PORT_QUERY", VariableString, ScopeGroup, "1"),
		variable("GROUP", VariableSecret, ScopeGroup), variable("MEMORY", VariableInt, ScopeTemplate, "1"), variable("A", VariableString, ScopeGroup, "1"),
	)}
	spec := GroupSpec{Templates: TemplateSelection{AllInGroups: []string{"g"}}, Variables: map[string]string{"MEMORY": "2", "GROUP": "sealed:eA"}}
	p := Compose(Group{Spec: spec}, Materials{Heads: all}, 0)
	if diff := cmp.Diff(map[string]string{"A": "1", "MEMORY": "2"}, p.Variables); diff != "" {
		t.Error(diff)
	}
	if len(p.Secrets)+len(p.Missing) > 0 {
		t.Errorf("secrets %v, missing %v", p.Secrets, p.Missing)
	}
}

func TestAPlanRemembersWhoIsShownItsValues(t *testing.T) {
	hidden := func(key string, v Visibility) Variable {
		return Variable{Key: key, Type: VariableString, Scope: ScopeGroup, Visibility: string(v)}
	}
	all := []TemplateHead{
		defining("g/low", hidden("A", VisibleToAdmins), hidden("B", VisibleToOperators), variable("W", VariableSecret, ScopeGroup)),
		defining("g/top", hidden("A", VisibleToAll), hidden("B", VisibleToAdmins), variable("S", VariableSecret, ScopeGroup), hidden("W", VisibleToAll), hidden("O", VisibleToAll)),
	}
	g := Group{
		Hidden: map[string]Visibility{"O": VisibleToOperators, "S": VisibleToNobody, "X": VisibleToAdmins},
		Spec:   GroupSpec{Templates: TemplateSelection{Override: true, AllInGroups: []string{"g"}}},
	}
	p := Compose(g, Materials{Heads: all}, 0)
	want := map[string]Visibility{"A": VisibleToAdmins, "B": VisibleToAdmins, "O": VisibleToOperators, "W": VisibleToNobody, "X": VisibleToAdmins}
	if diff := cmp.Diff(want, p.Hidden); diff != "" {
		t.Error(diff)
	}
	shown := p
	shown.Hidden = nil
	if p.CompositionDigest() != shown.CompositionDigest() || p.Digest() == shown.Digest() {
		t.Error("who is shown the values makes another instance, or the same plan")
	}
}
