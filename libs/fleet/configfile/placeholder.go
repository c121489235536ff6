package configfile

import (
	"iter"
	"slices"
	"strings"
)

// Substitute replaces %NAME% placeholders in one pass from left to right, not recursively. A name
// is [A-Za-z_][A-Za-z0-9_.-]*. Unknown placeholders stay unchanged; each is returned once, in
// order of appearance.
func Substitute(text string, value func(name string) (string, bool)) (string, []string) {
	if strings.IndexByte(text, '%') < 0 {
		return text, nil
	}
	var (
		out     strings.Builder
		unknown []string
	)
	for before, name := range EachPlaceholder(text) {
		out.WriteString(before)
		if name == "" {
			break
		}
		if v, ok := value(name); ok {
			out.WriteString(v)
			continue
		}
		out.WriteString("%" + name + "%")
		if !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	return out.String(), unknown
}

// EachPlaceholder yields the names of the placeholders in order, each with the text before it. The
// last pair has the remaining text and an empty name.
func EachPlaceholder(text string) iter.Seq2[string, string] {
	return func(yield func(before, name string) bool) {
		rest, from := text, 0
		for {
			i := strings.IndexByte(rest[from:], '%')
			if i < 0 {
				yield(rest, "")
				return
			}
			name := PlaceholderName(rest[from+i+1:])
			if name == "" { // a single percent sign is literal
				from += i + 1
				continue
			}
			if !yield(rest[:from+i], name) {
				return
			}
			rest, from = rest[from+i+len(name)+2:], 0
		}
	}
}

// PlaceholdersIn returns the names of the placeholders in a text, each once.
func PlaceholdersIn(text string) []string {
	var names []string
	for _, name := range EachPlaceholder(text) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// PlaceholderName returns the name at the start of s if a "%" follows it, else "".
func PlaceholderName(s string) string {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '%':
			return s[:i]
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c == '.' || c == '-' || c >= '0' && c <= '9'):
		default:
			return ""
		}
	}
	return ""
}

// BuiltInNames are the placeholders that every instance has.
var BuiltInNames = []string{
	"PORT", "INSTANCE_ID", "INSTANCE_NAME", "GROUP", "CONFIGURATION_NAME", "INSTANCE_GROUPS",
	"NODE_ID", "NODE_ADDRESS", "HOST_ADDRESS", "RAM_MB", "MEMORY", "MAX_PLAYERS",
	"MASTER_IP", "MASTER_ADDRESS", "MASTER_PORT", "MASTER_API_PORT", "NODE_PORT",
}

// BuiltIn reports whether name is a built-in placeholder or has the form of a port's
// (PORT_<NAME>). Templates cannot define such variables.
func BuiltIn(name string) bool {
	return slices.Contains(BuiltInNames, name) || strings.HasPrefix(name, "PORT_")
}
