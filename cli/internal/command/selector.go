package command

import (
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

// Selector selects objects by their labels. An empty one selects all.
type Selector []requirement

type requirement struct {
	key    string
	values []string
	// any accepts every value, and not turns the requirement around.
	any, not bool
}

// requirements are the parts of an expression: keep, !old, team=duels, stage!=test, zone in (a, b) and zone notin (a, b).
var requirements = lazyregexp.New(`^(!?)([^\s()=!<>~,]+)(?:\s*(!?)==?\s*([^\s()=!,]*)|\s+(not)?in\s*\(([^()=!]*)\))?$`)

// ParseSelector parses requirements that are separated by commas, for example team=duels,stage!=test,!old.
func ParseSelector(text string) (Selector, error) {
	var out Selector
	if text == "" {
		return nil, nil
	}
	for _, part := range splitRequirements(text) {
		m := requirements().FindStringSubmatch(strings.TrimSpace(part))
		compares := strings.ContainsAny(part, "=(")
		if m == nil || m[1] != "" && compares {
			return nil, UsageError("examples are team=duels, stage!=test, keep, !old and 'zone in (a, b)'", "--selector %q is not a list of labels", text)
		}
		r := requirement{key: m[2], any: !compares, not: m[1]+m[3]+m[5] != "", values: []string{m[4]}}
		if strings.Contains(part, "(") {
			r.values = strings.FieldsFunc(m[6], func(c rune) bool { return c == ',' || c == ' ' })
		}
		out = append(out, r)
	}
	return out, nil
}

// splitRequirements splits a text at the commas outside parentheses.
func splitRequirements(text string) []string {
	var parts []string
	begin, depth := 0, 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}

// Matches reports whether labels meet all requirements.
func (s Selector) Matches(labels map[string]any) bool {
	return !slices.ContainsFunc(s, func(r requirement) bool {
		value, has := labels[r.key].(string)
		return (has && (r.any || slices.Contains(r.values, value))) == r.not
	})
}
