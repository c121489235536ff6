package content

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Limits of the variable definitions of one template.
const (
	maxVariables     = 200
	maxVariableValue = 4 << 10
	maxVariableWords = 1 << 10
	maxEnumValues    = 200
)

// ValidateVariables returns what is wrong with the variable definitions of a template. Each error
// is Invalid and names a field such as "[2].key".
func ValidateVariables(all []Variable) []error {
	if len(all) > maxVariables {
		return []error{errs.New(errs.Invalid, "a template can define at most %d variables, but this one defines %d", maxVariables, len(all))}
	}
	var problems []error
	seen := map[string]bool{}
	for i, v := range all {
		at := fmt.Sprintf("[%d].", i)
		if seen[v.Key] {
			problems = append(problems, errs.Field(at+"key", "%s is defined twice", v.Key))
		}
		seen[v.Key] = true
		problems = append(problems, v.validate(at)...)
	}
	return problems
}

func (v Variable) validate(at string) (problems []error) {
	bad := func(field, format string, args ...any) {
		problems = append(problems, errs.Field(at+field, format, args...))
	}
	if len(v.Key) > 64 || configfile.PlaceholderName(v.Key+"%") != v.Key || v.Key == "" {
		bad("key", "must be a placeholder name: a letter or _, then letters, digits, _ . or -, at most 64 characters")
	}
	if configfile.BuiltIn(v.Key) {
		bad("key", "%s is a built-in placeholder: choose another name", v.Key)
	}
	switch v.Type {
	case VariableString, VariableText, VariableInt, VariableBool, VariableEnum, VariableSecret:
	default:
		bad("type", "must be STRING, TEXT, INT, BOOL, ENUM or SECRET")
	}
	switch v.Scope {
	case ScopeTemplate, ScopeGroup, ScopeInstance:
	default:
		bad("scope", "must be TEMPLATE, GROUP or INSTANCE")
	}
	switch v.Visibility {
	case "", "ADMIN", "OPERATOR":
	default:
		bad("visibility", "must be ADMIN or OPERATOR")
	}
	if len(v.Description) > maxVariableWords {
		bad("description", "is longer than %d bytes", maxVariableWords)
	}
	problems = append(problems, v.Validation.validate(at+"validation.", v.Type)...)
	if v.Default != nil && len(problems) == 0 {
		if err := v.Check(*v.Default); err != nil {
			bad("defaultValue", "%s", errs.MessageOf(err))
		}
	}
	if v.Scope == ScopeTemplate && v.Required && v.Default == nil {
		bad("defaultValue", "is missing: a required variable of scope TEMPLATE can only get its value here")
	}
	return problems
}

// validate returns what is wrong with a rule for a variable of type t.
func (r VariableRule) validate(at string, t VariableType) (problems []error) {
	bad := func(field, format string, args ...any) {
		problems = append(problems, errs.Field(at+field, format, args...))
	}
	if r.Regex != "" {
		if _, err := regexp.Compile(r.Regex); t != VariableString && t != VariableText || err != nil || len(r.Regex) > maxVariableWords {
			bad("regex", "must be a regular expression (RE2), and is only allowed for STRING and TEXT")
		}
	}
	switch {
	case (r.Min != nil || r.Max != nil) && t != VariableInt && t != VariableString && t != VariableText:
		bad("min", "and max are only allowed for INT, STRING and TEXT")
	case r.Min != nil && r.Max != nil && *r.Min > *r.Max:
		bad("min", "must not exceed max")
	}
	switch {
	case t != VariableEnum && len(r.EnumValues) > 0:
		bad("enumValues", "are only allowed for ENUM")
	case t == VariableEnum && (len(r.EnumValues) == 0 || len(r.EnumValues) > maxEnumValues):
		bad("enumValues", "must be 1 to %d values", maxEnumValues)
	case len(slices.Compact(slices.Sorted(slices.Values(r.EnumValues)))) != len(r.EnumValues):
		bad("enumValues", "contains a value twice")
	}
	return problems
}

// Check returns an Invalid error without a field if the variable cannot have the value. The value
// of a secret is a reference; Check does not resolve it.
func (v Variable) Check(value string) error {
	if limit := v.longest(); len(value) > limit || !validate.ValidValue(value) {
		return errs.New(errs.Invalid, "must be text of at most %d bytes", limit)
	}
	r := v.Validation
	switch v.Type {
	case VariableInt:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return errs.New(errs.Invalid, "must be a whole number")
		}
		return r.within(n, "")
	case VariableBool:
		if value != "true" && value != "false" {
			return errs.New(errs.Invalid, "must be true or false")
		}
	case VariableEnum:
		if !slices.Contains(r.EnumValues, value) {
			return errs.New(errs.Invalid, "must be one of %s", strings.Join(r.EnumValues[:min(len(r.EnumValues), 20)], ", "))
		}
	case VariableString, VariableText:
		if r.Regex != "" {
			if whole, err := regexp.Compile("^(?:" + r.Regex + ")$"); err != nil || !whole.MatchString(value) {
				return errs.New(errs.Invalid, "must match %s", r.Regex)
			}
		}
		return r.within(int64(utf8.RuneCountInString(value)), " characters")
	case VariableSecret:
		_, err := ParseSecretRef(value)
		return err
	}
	return nil
}

// CheckStart is Check for a value given at start. Only text variables may have several lines,
// because an additional line could become an additional setting in a file.
func (v Variable) CheckStart(value string) error {
	if err := v.Check(value); err != nil {
		return err
	}
	return checkLines(value, v.Type == VariableText)
}

// checkLines rejects control characters and line separators. The error is Invalid, without a
// field.
func checkLines(value string, several bool) error {
	ends := func(c rune) bool { return unicode.IsControl(c) || c == '\u2028' || c == '\u2029' }
	switch {
	case several && strings.ContainsFunc(value, func(c rune) bool { return ends(c) && !strings.ContainsRune("\n\r\t", c) }):
		return errs.New(errs.Invalid, "must not contain control characters other than newlines and tabs")
	case !several && strings.ContainsFunc(value, ends):
		return errs.New(errs.Invalid, "must not contain newlines or control characters; only variables of type TEXT may contain newlines")
	}
	return nil
}

// CheckStartSecret rejects a plain-text secret given at start that has several lines. The error is
// Invalid, without a field.
func CheckStartSecret(value string) error { return checkLines(value, false) }

// longest returns the maximum length of a value in bytes. Sealing makes a secret's value longer.
func (v Variable) longest() int {
	if v.Type == VariableSecret {
		return 2 * maxVariableValue
	}
	return maxVariableValue
}

// within checks a number against the limits. of is appended to the number in messages.
func (r VariableRule) within(n int64, of string) error {
	switch {
	case r.Min != nil && n < *r.Min:
		return errs.New(errs.Invalid, "must be at least %d%s", *r.Min, of)
	case r.Max != nil && n > *r.Max:
		return errs.New(errs.Invalid, "must be at most %d%s", *r.Max, of)
	}
	return nil
}
