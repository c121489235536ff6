package content_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestVariableDefinitionMatchesType(t *testing.T) {
	text := func(s string) *string { return &s }
	num := func(n int64) *int64 { return &n }
	fine := func(edit func(*content.Variable)) content.Variable {
		v := content.Variable{Key: "motd", Type: content.VariableString, Scope: content.ScopeGroup}
		if edit != nil {
			edit(&v)
		}
		return v
	}
	for _, c := range []struct {
		name  string
		field string // "": it is fine
		edit  func(*content.Variable)
	}{
		{"plain text", "", nil},
		{"no key", "[0].key", func(v *content.Variable) { v.Key = "" }},
		{"a key no placeholder has", "[0].key", func(v *content.Variable) { v.Key = "a b" }},
		{"a key with a sign that ends one", "[0].key", func(v *content.Variable) { v.Key = "a%b" }},
		{"a key too long", "[0].key", func(v *content.Variable) { v.Key = strings.Repeat("a", 65) }},
		{"a key that is built in", "[0].key", func(v *content.Variable) { v.Key = "PORT" }},
		{"a key of an additional port", "[0].key", func(v *content.Variable) { v.Key = "PORT_QUERY" }},
		{"a key that is built in but for its case", "", func(v *content.Variable) { v.Key = "port" }},
		{"an unknown type", "[0].type", func(v *content.Variable) { v.Type = "string" }},
		{"an unknown scope", "[0].scope", func(v *content.Variable) { v.Scope = "" }},
		{"an unknown visibility", "[0].visibility", func(v *content.Variable) { v.Visibility = "ALL" }},
		{"a bad pattern", "[0].validation.regex", func(v *content.Variable) { v.Validation.Regex = "(" }},
		{"a pattern of a number", "[0].validation.regex", func(v *content.Variable) { v.Type = content.VariableInt; v.Validation.Regex = "a" }},
		{"bounds that cross", "[0].validation.min", func(v *content.Variable) { v.Validation.Min, v.Validation.Max = num(2), num(1) }},
		{"bounds of a bool", "[0].validation.min", func(v *content.Variable) { v.Type = content.VariableBool; v.Validation.Min = num(1) }},
		{"an enum without values", "[0].validation.enumValues", func(v *content.Variable) { v.Type = content.VariableEnum }},
		{"an enum with one twice", "[0].validation.enumValues", func(v *content.Variable) {
			v.Type = content.VariableEnum
			v.Validation.EnumValues = []string{"a", "a"}
		}},
		{"values of no enum", "[0].validation.enumValues", func(v *content.Variable) { v.Validation.EnumValues = []string{"a"} }},
		{"a default out of bounds", "[0].defaultValue", func(v *content.Variable) { v.Validation.Max = num(2); v.Default = text("abc") }},
		{"a default within", "", func(v *content.Variable) { v.Validation.Max = num(3); v.Default = text("äöü") }},
		{"a required one nobody can give", "[0].defaultValue", func(v *content.Variable) { v.Scope = content.ScopeTemplate; v.Required = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems := content.ValidateVariables([]content.Variable{fine(c.edit)})
			switch {
			case c.field == "" && len(problems) > 0:
				t.Errorf("got %v", problems)
			case c.field != "" && (len(problems) != 1 || errs.FieldOf(problems[0]) != c.field || !errs.Is(problems[0], errs.Invalid)):
				t.Errorf("got %v, want %s", problems, c.field)
			}
		})
	}
	if problems := content.ValidateVariables([]content.Variable{fine(nil), fine(nil)}); fmt.Sprint(problems) != "[motd is defined twice]" {
		t.Errorf("got %v", problems)
	}
	if problems := content.ValidateVariables(make([]content.Variable, 201)); len(problems) != 1 {
		t.Errorf("too many: %d problems", len(problems))
	}
}

func TestVariableValueMatchesType(t *testing.T) {
	one, nine := int64(1), int64(9)
	rule := content.VariableRule{Min: &one, Max: &nine, EnumValues: []string{"a", "b"}}
	for _, c := range []struct {
		kind  content.VariableType
		value string
		ok    bool
	}{
		{content.VariableInt, "1", true},
		{content.VariableInt, "10", false},
		{content.VariableInt, "0", false},
		{content.VariableInt, "1.5", false},
		{content.VariableInt, "", false},
		{content.VariableBool, "true", true},
		{content.VariableBool, "yes", false},
		{content.VariableEnum, "b", true},
		{content.VariableEnum, "c", false},
		{content.VariableString, "x", true},
		{content.VariableString, "", false},
		{content.VariableString, "a\x00", false},
		{content.VariableString, "\xff", false},
		{content.VariableString, strings.Repeat("x", 5000), false},
		{content.VariableSecret, "secret:name", true},
		{content.VariableSecret, "hunter2", false},
		{content.VariableSecret, "env:", false},
	} {
		if err := (content.Variable{Type: c.kind, Validation: rule}).Check(c.value); (err == nil) != c.ok {
			t.Errorf("%s %q: %v", c.kind, c.value, err)
		}
	}
	whole := content.Variable{Type: content.VariableString, Validation: content.VariableRule{Regex: "a|bc"}}
	if whole.Check("bc") != nil || whole.Check("abc") == nil {
		t.Error("a pattern matches a part of the value, or not all of it")
	}
}
