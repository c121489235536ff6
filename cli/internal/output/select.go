package output

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
	"github.com/tidwall/gjson"
)

// Filter selects rows by the values of their fields.
type Filter []condition

type condition struct {
	path, operator, value string
	pattern               *regexp.Regexp
}

// conditionPattern splits a condition into field, operator and value.
var conditionPattern = lazyregexp.New(`^([A-Za-z][A-Za-z0-9_.\[\]-]*)(!=|>=|<=|!~|=|>|<|~)(.*)$`)

// ParseFilter parses conditions such as state=RUNNING,playerCount>0,id~^lobby. All of them must hold. known
// are the names of the fields; nil accepts all. flag names the flag in errors.
func ParseFilter(flag, text string, known []string) (Filter, error) {
	var filter Filter
	for _, part := range strings.Split(text, ",") {
		if part == "" {
			continue
		}
		m := conditionPattern().FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%s %q is not a condition such as state=RUNNING, playerCount>0 or id~^lobby", flag, part)
		}
		c := condition{path: m[1], operator: m[2], value: m[3]}
		if err := checkField(flag, c.path, known); err != nil {
			return nil, err
		}
		if strings.HasSuffix(c.operator, "~") {
			pattern, err := regexp.Compile(c.value)
			if err != nil {
				return nil, fmt.Errorf("%s %q: %w", flag, part, err)
			}
			c.pattern = pattern
		}
		filter = append(filter, c)
	}
	return filter, nil
}

// checkField returns an error if no field has the first part of path as its name.
func checkField(flag, path string, known []string) error {
	name, _, _ := strings.Cut(path, ".")
	if known == nil || slices.Contains(known, name) {
		return nil
	}
	return fmt.Errorf("%s: there is no field %q; the fields are %s", flag, name, strings.Join(known, ", "))
}

// Matches reports whether the row meets every condition.
func (f Filter) Matches(row Row) bool {
	return !slices.ContainsFunc(f, func(c condition) bool { return !c.holds(gjson.GetBytes(row, c.path)) })
}

func (c condition) holds(field gjson.Result) bool {
	switch c.operator {
	case "~":
		return c.pattern.MatchString(field.String())
	case "!~":
		return !c.pattern.MatchString(field.String())
	}
	order := compareText(field, c.value)
	switch c.operator {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case ">":
		return order > 0 && field.Exists()
	case "<":
		return order < 0 && field.Exists()
	case ">=":
		return order >= 0 && field.Exists()
	default: // <=
		return order <= 0 && field.Exists()
	}
}

// compareText compares a field with the text of a value, as numbers if both are.
func compareText(field gjson.Result, value string) int {
	number, err := strconv.ParseFloat(value, 64)
	if err == nil && field.Type == gjson.Number {
		return cmp.Compare(field.Num, number)
	}
	return cmp.Compare(strings.ToLower(field.String()), strings.ToLower(value))
}

// Sort sorts rows by a field; a minus before its name reverses the order.
func Sort(rows []Row, by string, known []string) error {
	if by == "" {
		return nil
	}
	path, descending := strings.CutPrefix(by, "-")
	if err := checkField("--sort-by", path, known); err != nil {
		return err
	}
	fields := make(map[*byte]gjson.Result, len(rows)) // each row is parsed once
	for _, row := range rows {
		fields[&row[0]] = gjson.GetBytes(row, path)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		order := compareFields(fields[&a[0]], fields[&b[0]])
		if descending {
			return -order
		}
		return order
	})
	return nil
}

func compareFields(a, b gjson.Result) int {
	if a.Type == gjson.Number && b.Type == gjson.Number {
		return cmp.Compare(a.Num, b.Num)
	}
	return cmp.Compare(a.String(), b.String())
}
