package fleet

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Substitute replaces %NAME% placeholders in one pass from left to right, never
// recursively. A name is [A-Za-z_][A-Za-z0-9_.-]*. Unknown placeholders stay as
// they are and are returned once each, in order of appearance.
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

// EachPlaceholder yields the placeholders of a text in their order, each with the text
// before it. The last pair has the rest of the text and no name.
func EachPlaceholder(text string) iter.Seq2[string, string] {
	return func(yield func(before, name string) bool) {
		rest, from := text, 0
		for {
			i := strings.IndexByte(rest[from:], '%')
			if i < 0 {
				yield(rest, "")
				return
			}
			name := placeholderName(rest[from+i+1:])
			if name == "" { // a lone percent sign is literal
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

// PlaceholdersIn are the names of the placeholders in a text.
func PlaceholdersIn(text string) []string {
	var names []string
	for _, name := range EachPlaceholder(text) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// placeholderName is the name at the start of s when a "%" ends it, else "".
func placeholderName(s string) string {
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

// BuiltIn reports whether every instance has a placeholder of this name, or the one of
// an additional port. No template defines a variable of such a name.
func BuiltIn(name string) bool {
	_, every := builtIns(PlaceholderContext{})[name]
	return every || strings.HasPrefix(name, "PORT_")
}

// PlaceholderContext is what the built-in placeholders are made of.
type PlaceholderContext struct {
	Plan      Plan
	Placement Placement
	Node      Node
	// APIHost and APIPort are the gateway's address as seen by nodes.
	APIHost string
	APIPort string
	// HostAddress is the instance's advertised address, already resolved; empty while it is being resolved.
	HostAddress string
}

// Placeholders are all placeholder values of an instance: built-ins, then node
// variables, group variables and values given at start, each overriding the ones before.
// A value given at start overrides none that is built in.
// Variables of type SECRET are not among them, whoever else gives one of their name, nor
// is what was sealed for one that is none any more.
func Placeholders(c PlaceholderContext) map[string]string {
	p, pl, v := c.Plan, c.Placement, builtIns(c)
	given := maps.Clone(pl.Values)
	maps.DeleteFunc(given, func(k, _ string) bool { return BuiltIn(k) })
	for _, m := range []map[string]string{c.Node.Variables, p.Variables, given} {
		for k, val := range m {
			if !IsSealed(val) { // given while the variable was a secret, and no text now
				v[k] = val
			}
		}
	}
	for k := range p.Secrets {
		delete(v, k)
	}
	return v
}

// builtIns are the placeholder values that every instance has, and those of its ports.
func builtIns(c PlaceholderContext) map[string]string {
	p, pl := c.Plan, c.Placement
	host := c.HostAddress
	if host == "" {
		host = c.Node.Address
	}
	v := map[string]string{
		"PORT":               strconv.Itoa(pl.Port),
		"INSTANCE_ID":        string(pl.Instance),
		"INSTANCE_NAME":      pl.Name,
		"GROUP":              string(pl.Group),
		"CONFIGURATION_NAME": string(pl.Group),
		"INSTANCE_GROUPS":    strings.Join(p.InstanceGroups, ";"),
		"NODE_ID":            string(pl.Node),
		"NODE_ADDRESS":       c.Node.Address,
		"HOST_ADDRESS":       host,
		"RAM_MB":             strconv.Itoa(p.Resources.MemoryMiB),
		"MEMORY":             strconv.Itoa(p.Resources.MemoryMiB),
		"MAX_PLAYERS":        strconv.Itoa(p.MaxPlayers),
		"MASTER_IP":          c.APIHost,
		"MASTER_ADDRESS":     c.APIHost,
		"MASTER_PORT":        c.APIPort,
		"MASTER_API_PORT":    c.APIPort,
		"NODE_PORT":          c.Node.AgentPort(),
	}
	for name, port := range pl.Ports {
		v["PORT_"+strings.ToUpper(name)] = strconv.Itoa(port)
	}
	return v
}
