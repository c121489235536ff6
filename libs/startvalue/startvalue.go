// Package startvalue inserts the values given at the start of an instance into its command.
//
// Users who may start an instance must not be able to choose what its node runs. Start values
// therefore never become part of a command's text. The command gets references to environment
// variables instead, quoted as required by the surrounding shell grammar, and the shell expands
// them after it has parsed the command. Values of groups, nodes and templates are inserted as
// text, because users who set them may also set the command.
//
// A reference is safe only if its value remains part of one argument of a program that does not
// interpret its arguments as code. Everywhere else, such as in the program of bash -c, the start
// is refused.
package startvalue

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

// Values are the placeholder values of an instance, separated by origin.
type Values struct {
	// Text are the values of the group, the node and the templates, and the built-in ones.
	Text map[string]string
	// Start are the values given at start.
	Start map[string]string
}

// Split separates an instance's placeholder values by origin. given are those given at its start.
func Split(all, given map[string]string) Values {
	v := Values{Text: map[string]string{}, Start: map[string]string{}}
	for key, value := range all {
		if _, at := given[key]; at && !configfile.BuiltIn(key) {
			v.Start[key] = value
		} else {
			v.Text[key] = value
		}
	}
	return v
}

// Command is a shell command with its placeholders replaced.
type Command struct {
	Text string
	// Env are the variables that the references read, as NAME=value.
	Env []string
	// Unknown are the placeholders without a value.
	Unknown []string
}

// mark is the position of a start value in a text.
type mark struct {
	from, to int
	name     string
}

// Command replaces the placeholders of a plan's command. The error is Invalid for the field
// variables.NAME if a start value could change the words or the effect of the command. The Text of
// a refused command still contains the placeholders of start values.
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

// text inserts the values that are inserted as text, and marks the others.
func (v Values) text(command string) (text string, marks []mark, unknown []string) {
	var out strings.Builder
	for before, name := range configfile.EachPlaceholder(command) {
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

// refer replaces the marks with references to environment variables.
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

// taken reports whether a command or its environment uses a name with the prefix.
func taken(prefix, text string, env map[string]string) bool {
	for name := range env {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.Contains(text, prefix)
}

// env returns the environment variables that contain a start value. The error is Invalid if a
// shell, a loader or an interpreter would treat such a variable as code.
func (v Values) env(env map[string]string) (tainted map[string]string, err error) {
	tainted = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		for _, key := range configfile.PlaceholdersIn(env[name]) {
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

// isCode reports whether an environment variable decides which programs run, or how a shell parses
// a command.
func isCode(name string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	ends := func(suffix string) bool { return strings.HasSuffix(name, suffix) }
	return slices.ContainsFunc([]string{"LD_", "DYLD_", "BASH", "PYTHON", "PERL5", "RUBY", "NODE_", "LUA_", "GIT_", "GCONV_"}, begins) ||
		slices.ContainsFunc([]string{"OPTS", "OPTIONS", "ARGS", "FLAGS", "PATH"}, ends) ||
		slices.Contains([]string{"IFS", "ENV", "PS4", "PROMPT_COMMAND", "GLOBIGNORE", "EXECIGNORE", "SHELL", "JAVA_HOME", "STARTUP", "COMMAND", "CMD"}, name)
}

// refuse returns the error for a value that cannot be inserted.
func refuse(key, place string) error {
	return errs.Field("variables."+key, "cannot be given at a start: the command or environment uses %%%s%% in %s; use it in a plain argument of a program, or set it in the group", key, place)
}
