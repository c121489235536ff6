package workspace

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/startvalue"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// programs are suffixes of files that shells and interpreters execute, and of files with
// JVM options or environment variables.
var programs = []string{
	".sh", ".bash", ".zsh", ".ksh", ".fish", ".py", ".pl", ".pm", ".rb", ".js", ".mjs", ".cjs", ".ts", ".lua", ".php", ".groovy", ".kts",
	".jsh", ".ps1", ".bat", ".cmd", ".awk", ".sk", ".service",
	"args.txt", ".args", ".argfile", ".vmoptions", ".jvmopts", "jvm.options", "jvm.config", ".env", ".envrc", "makefile",
}

// edit applies the rules to a file's text. It fails if a program contains a value that was
// given at start, because users who may start an instance must not choose what it executes.
func (a *applier) edit(rules render.Rules, name string, content []byte, mode fs.FileMode) (out []byte, changed bool, err error) {
	out, changed, err = a.text.edit(rules, name, content)
	given := a.request.Placement.Values
	if err != nil || !changed || len(given) == 0 || !a.isProgram(name, out, mode) {
		return out, changed, err
	}
	rules.Values = maps.Clone(rules.Values)
	maps.DeleteFunc(rules.Values, func(key, _ string) bool { _, at := given[key]; return at && !configfile.BuiltIn(key) })
	without, err := rules.Edit(name, content)
	if err == nil && bytes.Equal(without.Content, out) {
		return out, changed, nil
	}
	return nil, false, &Failure{Reason: fleet.ReasonStartValue, Err: err, Message: fmt.Sprintf(
		"%s: %s is a program with a placeholder for it; pass the value as an argument of the group's command", fleet.ReasonStartValue.Text(), name)}
}

// isProgram reports whether a file is executable code, by its mode, its content, its name or
// the instance's command.
func (a *applier) isProgram(name string, content []byte, mode fs.FileMode) bool {
	if mode&0o111 != 0 || bytes.HasPrefix(content, []byte("#!")) {
		return true
	}
	lower := strings.ToLower(name)
	if slices.ContainsFunc(programs, func(suffix string) bool { return strings.HasSuffix(lower, suffix) }) {
		return true
	}
	command, _ := render.Substitute(a.request.Plan.Command, a.request.Values)
	return slices.ContainsFunc(startvalue.Files(command), func(file string) bool { return strings.HasSuffix("/"+file, "/"+name) })
}
