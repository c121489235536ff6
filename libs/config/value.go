package config

import (
	"encoding/json"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"
)

// kind is the type of a setting's values. A parsed value is a string, int64, bool, float64,
// time.Duration, []string or map[string]string.
type kind uint8

const (
	text kind = iota
	integer
	boolean
	decimal
	duration
	list
	table
)

// String returns the type's name in help and references.
func (k kind) String() string {
	return [...]string{"string", "int", "bool", "float", "duration", "list", "map"}[k]
}

// wants describes the values of the kind.
func (k kind) wants() string {
	return [...]string{
		"a string", "a whole number", "true or false", "a number",
		"a duration such as 500ms, 30s or 5m", "a list of strings", "a map of strings (k=v,k=v)",
	}[k]
}

// parse parses a value from a variable, a flag or a default.
func (k kind) parse(s string) (any, bool) {
	switch k {
	case text:
		return s, true
	case integer:
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		return n, err == nil
	case boolean:
		b, err := strconv.ParseBool(strings.ToLower(strings.TrimSpace(s)))
		return b, err == nil
	case decimal:
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	case duration:
		d, err := time.ParseDuration(strings.TrimSpace(s))
		return d, err == nil
	case list:
		return parseList(s)
	case table:
		return parseTable(s)
	}
	return nil, false
}

// zero returns the value of an empty default.
func (k kind) zero() any {
	return [...]any{"", int64(0), false, 0.0, time.Duration(0), []string(nil), map[string]string(nil)}[k]
}

// parseAll parses all occurrences of a flag: lists and maps are combined, otherwise the last one
// counts.
func (k kind) parseAll(occurrences []string) (any, bool) {
	switch k {
	case list:
		var all []string
		for _, s := range occurrences {
			l, ok := parseList(s)
			if !ok {
				return nil, false
			}
			all = append(all, l...)
		}
		return all, true
	case table:
		all := map[string]string{}
		for _, s := range occurrences {
			t, ok := parseTable(s)
			if !ok {
				return nil, false
			}
			maps.Copy(all, t)
		}
		return all, true
	case text, integer, boolean, decimal, duration:
	}
	return k.parse(occurrences[len(occurrences)-1])
}

func parseList(s string) ([]string, bool) {
	var l []string
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "[") {
		return l, json.Unmarshal([]byte(s), &l) == nil
	}
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			l = append(l, item)
		}
	}
	return l, true
}

func parseTable(s string) (map[string]string, bool) {
	s = strings.TrimSpace(s)
	t := map[string]string{}
	if strings.HasPrefix(s, "{") {
		return t, json.Unmarshal([]byte(s), &t) == nil
	}
	for pair := range strings.SplitSeq(s, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		if k = strings.TrimSpace(k); !ok || k == "" {
			return nil, false
		}
		t[k] = v
	}
	return t, true
}

// convert converts a decoded value of a file. Text is parsed like a variable, so 8080 and "8080"
// are the same port. A number is never accepted as a string, because 1.10 would silently become
// 1.1.
func (k kind) convert(raw any) (any, bool) {
	if s, ok := raw.(string); ok && k != list && k != table {
		return k.parse(s)
	}
	switch k {
	case integer:
		return wholeNumber(raw)
	case decimal:
		if n, ok := wholeNumber(raw); ok {
			return float64(n.(int64)), true
		}
		f, ok := raw.(float64)
		return f, ok
	case boolean:
		b, ok := raw.(bool)
		return b, ok
	case list:
		return stringList(raw)
	case table:
		return stringTable(raw)
	case text, duration:
	}
	return nil, false
}

func wholeNumber(raw any) (any, bool) {
	switch n := raw.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	case float64: // all JSON numbers; not exact beyond 2^53
		return int64(n), n == math.Trunc(n) && math.Abs(n) <= 1<<53
	}
	return nil, false
}

func stringList(raw any) (any, bool) {
	items, ok := raw.([]any)
	l := make([]string, 0, len(items))
	for _, item := range items {
		s, isString := item.(string)
		ok = ok && isString
		l = append(l, s)
	}
	return l, ok
}

func stringTable(raw any) (any, bool) {
	m, ok := raw.(map[string]any)
	t := make(map[string]string, len(m))
	for k, v := range m {
		s, isString := v.(string)
		ok = ok && isString
		t[k] = s
	}
	return t, ok
}
