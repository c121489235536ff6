package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestADefinitionOfAVariableIsHeldToItsType(t *testing.T) {
	text := func(s string) *string { return &s }
	num := func(n int64) *int64 { return &n }
	fine := func(edit func(*fleet.Variable)) fleet.Variable {
		v := fleet.Variable{Key: "motd", Type: fleet.VariableString, Scope: fleet.ScopeGroup}
		if edit != nil {
			edit(&v)
		}
		return v
	}
	for _, c := range []struct {
		name  string
		field string // "": it is fine
		edit  func(*fleet.Variable)
	}{
		{"plain text", "", nil},
		{"no key", "[0].key", func(v *fleet.Variable) { v.Key = "" }},
		{"a key no placeholder has", "[0].key", func(v *fleet.Variable) { v.Key = "a b" }},
		{"a key with a sign that ends one", "[0].key", func(v *fleet.Variable) { v.Key = "a%b" }},
		{"a key too long", "[0].key", func(v *fleet.Variable) { v.Key = strings.Repeat("a", 65) }},
		{"a key that is built in", "[0].key", func(v *fleet.Variable) { v.Key = "PORT" }},
		{"a key of an additional port", "[0].key", func(v *fleet.Variable) { v.Key = "PORT_QUERY" }},
		{"a key that is built in but for its case", "", func(v *fleet.Variable) { v.Key = "port" }},
		{"an unknown type", "[0].type", func(v *fleet.Variable) { v.Type = "string" }},
		{"an unknown scope", "[0].scope", func(v *fleet.Variable) { v.Scope = "" }},
		{"an unknown visibility", "[0].visibility", func(v *fleet.Variable) { v.Visibility = "ALL" }},
		{"a bad pattern", "[0].validation.regex", func(v *fleet.Variable) { v.Validation.Regex = "(" }},
		{"a pattern of a number", "[0].validation.regex", func(v *fleet.Variable) { v.Type = fleet.VariableInt; v.Validation.Regex = "a" }},
		{"bounds that cross", "[0].validation.min", func(v *fleet.Variable) { v.Validation.Min, v.Validation.Max = num(2), num(1) }},
		{"bounds of a bool", "[0].validation.min", func(v *fleet.Variable) { v.Type = fleet.VariableBool; v.Validation.Min = num(1) }},
		{"an enum without values", "[0].validation.enumValues", func(v *fleet.Variable) { v.Type = fleet.VariableEnum }},
		{"an enum with one twice", "[0].validation.enumValues", func(v *fleet.Variable) {
			v.Type = fleet.VariableEnum
			v.Validation.EnumValues = []string{"a", "a"}
		}},
		{"values of no enum", "[0].validation.enumValues", func(v *fleet.Variable) { v.Validation.EnumValues = []string{"a"} }},
		{"a default out of bounds", "[0].defaultValue", func(v *fleet.Variable) { v.Validation.Max = num(2); v.Default = text("abc") }},
		{"a default within", "", func(v *fleet.Variable) { v.Validation.Max = num(3); v.Default = text("äöü") }},
		{"a required one nobody can give", "[0].defaultValue", func(v *fleet.Variable) { v.Scope = fleet.ScopeTemplate; v.Required = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := fleet.ValidateVariables([]fleet.Variable{fine(c.edit)})
			switch {
			case c.field == "" && len(problems) > 0:
				t.Errorf("got %v", problems)
			case c.field != "" && (len(problems) != 1 || errs.FieldOf(problems[0]) != c.field || !errs.Is(problems[0], errs.Invalid)):
				t.Errorf("got %v, want %s", problems, c.field)
			}
		})
	}
	if problems := fleet.ValidateVariables([]fleet.Variable{fine(nil), fine(nil)}); fmt.Sprint(problems) != "[motd is defined twice]" {
		t.Errorf("got %v", problems)
	}
	if problems := fleet.ValidateVariables(make([]fleet.Variable, 201)); len(problems) != 1 {
		t.Errorf("too many: %d problems", len(problems))
	}
}

func TestAValueIsHeldToItsVariablesType(t *testing.T) {
	one, nine := int64(1), int64(9)
	rule := fleet.VariableRule{Min: &one, Max: &nine, EnumValues: []string{"a", "b"}}
	for _, c := range []struct {
		kind  fleet.VariableType
		value string
		ok    bool
	}{
		{fleet.VariableInt, "1", true},
		{fleet.VariableInt, "10", false},
		{fleet.VariableInt, "0", false},
		{fleet.VariableInt, "1.5", false},
		{fleet.VariableInt, "", false},
		{fleet.VariableBool, "true", true},
		{fleet.VariableBool, "yes", false},
		{fleet.VariableEnum, "b", true},
		{fleet.VariableEnum, "c", false},
		{fleet.VariableString, "x", true},
		{fleet.VariableString, "", false},
		{fleet.VariableString, "a\x00", false},
		{fleet.VariableString, "\xff", false},
		{fleet.VariableString, strings.Repeat("x", 5000), false},
		{fleet.VariableSecret, "secret:name", true},
		{fleet.VariableSecret, "hunter2", false},
		{fleet.VariableSecret, "env:", false},
	} {
		if err := (fleet.Variable{Type: c.kind, Validation: rule}).Check(c.value); (err == nil) != c.ok {
			t.Errorf("%s %q: %v", c.kind, c.value, err)
		}
	}
	whole := fleet.Variable{Type: fleet.VariableString, Validation: fleet.VariableRule{Regex: "a|bc"}}
	if whole.Check("bc") != nil || whole.Check("abc") == nil {
		t.Error("a pattern matches a part of the value, or not all of it")
	}
}
