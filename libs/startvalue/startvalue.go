// Package startvalue inserts the values that are given when an instance is started.
//
// Whoever may start an instance may not choose what its node runs. So these values never
// become part of a command's text. The command gets references to environment variables
// in their place, quoted as the shell grammar around each demands, and the shell expands
// them after it has read the command. Values of groups, nodes and templates enter a
// command as text: whoever sets them may set the command.
//
// A reference is safe only where its value stays a part of one argument of a program that
// does not read its arguments as code. Everywhere else, such as in the program of bash -c,
// the start is refused.
package startvalue

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Values are the placeholder values of an instance by where they come from.
type Values struct {
	// Text are those of the group, the node and the templates, and those built in.
	Text map[string]string
	// Start are those given at start.
	Start map[string]string
}

// Split tells which of an instance's placeholder values were given at its start.
func Split(all, given map[string]string) Values {
	v := Values{Text: map[string]string{}, Start: map[string]string{}}
	for key, value := range all {
		if _, at := given[key]; at && !fleet.BuiltIn(key) {
			v.Start[key] = value
		} else {
			v.Text[key] = value
		}
	}
	return v
}

// Command is a shell line whose placeholders are replaced.
type Command struct {
	Text string
	// Env are the variables that its references read, as NAME=value.
	Env []string
	// Unknown are the placeholders without a value.
	Unknown []string
}

// mark is where a value given at start goes in a text.
type mark struct {
	from, to int
	name     string
}

// Command replaces the placeholders of a plan's command. Invalid, with the field
// variables.NAME, where a value given at start could change the words or the effect of
// the command. The Text of a refused command has the placeholders of these values.
func (v Values) Command(p fleet.Plan) (Command, error) {
	text, marks, unknown := v.text(p.Command)
	out := Command{Text: text, Unknown: unknown}
	tainted, err := v.env(p.Env)
	if err != nil {
		return out, err
	}
	if len(marks) == 0 && !expands(text, tainted) {
		return out, nil
	}
	places, err := v.places(text, marks, tainted)
	if err != nil {
		return out, err
	}
	out.Text, out.Env = v.refer(text, marks, places, p.Env)
	return out, nil
}

// text replaces the placeholders whose values enter as text, and marks the others.
func (v Values) text(command string) (text string, marks []mark, unknown []string) {
	var out strings.Builder
	for before, name := range fleet.EachPlaceholder(command) {
		out.WriteString(before)
		if name == "" {
			break
		}
		placeholder := "%" + name + "%"
		if _, at := v.Start[name]; at {
			marks = append(marks, mark{out.Len(), out.Len() + len(placeholder), name})
			out.WriteString(placeholder)
			continue
		}
		value, ok := v.Text[name]
		if !ok {
			value = placeholder
			if !slices.Contains(unknown, name) {
				unknown = append(unknown, name)
			}
		}
		out.WriteString(value)
	}
	return out.String(), marks, unknown
}

// refer replaces the marks by references to variables of the environment.
func (v Values) refer(text string, marks []mark, places []place, env map[string]string) (string, []string) {
	prefix := "ORRERY_START_"
	for taken(prefix, text, env) {
		prefix += "_"
	}
	names := map[string]string{}
	var out strings.Builder
	var used []string
	end := 0
	for n, m := range marks {
		out.WriteString(text[end:m.from])
		end = m.to
		if places[n] == comment {
			out.WriteString(text[m.from:m.to])
			continue
		}
		if names[m.name] == "" {
			names[m.name] = prefix + strconv.Itoa(len(names)+1)
			used = append(used, names[m.name]+"="+v.Start[m.name])
		}
		reference := "${" + names[m.name] + "}"
		switch places[n] {
		case unquoted:
			reference = `"` + reference + `"`
		case singleQuoted:
			reference = `'"` + reference + `"'`
		case doubleQuoted, comment:
		}
		out.WriteString(reference)
	}
	return out.String() + text[end:], used
}

// taken reports whether a command or its environment has a name that begins so.
func taken(prefix, text string, env map[string]string) bool {
	for name := range env {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.Contains(text, prefix)
}

// env are the variables of a workload's environment that hold a value given at start.
// Invalid where a shell, a loader or an interpreter takes such a variable for code.
func (v Values) env(env map[string]string) (tainted map[string]string, err error) {
	tainted = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		for _, key := range fleet.PlaceholdersIn(env[name]) {
			if _, at := v.Start[key]; !at {
				continue
			}
			if isCode(name) {
				return nil, refuse(key, "the environment variable "+name+", which decides what is run")
			}
			tainted[name] = key
		}
	}
	return tainted, nil
}

// isCode reports whether a variable of the environment decides what programs run, or how
// a shell reads a command.
func isCode(name string) bool {
	for _, prefix := range []string{"LD_", "DYLD_", "BASH", "PYTHON", "PERL5", "RUBY", "NODE_", "LUA_", "GIT_", "GCONV_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	for _, suffix := range []string{"OPTS", "OPTIONS", "ARGS", "FLAGS", "PATH"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return slices.Contains([]string{"IFS", "ENV", "PS4", "PROMPT_COMMAND", "GLOBIGNORE", "EXECIGNORE", "SHELL", "JAVA_HOME", "STARTUP", "COMMAND", "CMD"}, name)
}

// refuse is the error of a value that cannot be inserted.
func refuse(key, place string) error {
	return errs.Field("variables."+key, "cannot be given at a start: the command or environment uses %%%s%% in %s; use it in a plain argument of a program, or set it in the group", key, place)
}
