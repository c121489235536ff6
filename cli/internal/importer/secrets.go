package importer

import (
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/cmdline"
	"github.com/orreryhq/orrery/cli/internal/importer/names"
	"github.com/orreryhq/orrery/cli/internal/importer/secret"
)

const secretHelp = "Keep it as a secret (docs/keep-secrets.md)."

// words returns a command line made of words in which secrets are placeholders, and notes them.
func (r *report) words(object, field string, words []string, quote func(string) string) string {
	masked, found := secret.Words(words)
	line, more := secret.Command(cmdline.QuoteAll(masked, quote))
	r.secretsNote(object, field, append(found, more...))
	return line
}

// command returns a command line in which secrets are placeholders, and notes them.
func (r *report) command(object, field, line string) string {
	masked, found := secret.Command(line)
	r.secretsNote(object, field, found)
	return masked
}

// secretsNote notes the placeholders that a command has instead of secrets.
func (r *report) secretsNote(object, field string, found []string) {
	if len(found) > 0 {
		r.note(object, field, secret.Hidden, "The command has secrets that were not copied. They are the placeholders %s now: keep their values as secrets (docs/keep-secrets.md).", strings.Join(found, ", "))
	}
}

// blockedEnv are the variables that Orrery refuses, because they load foreign code.
func blockedEnv() []string {
	return []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"}
}

// env takes a field with environment variables. It leaves out and notes those that are secret or
// that Orrery refuses.
func (o *object) env(field string) map[string]any {
	return o.pairs(field, func(name string) string {
		switch {
		case slices.Contains(blockedEnv(), name):
			return "Orrery refuses this variable, because it loads foreign code into the server. Give the setting in command or jvmArgs."
		case !names.IsVariable(name):
			return "It is not the name of a variable, so it was left out."
		}
		return ""
	})
}

// values takes a field with values of placeholders, with the same rules for secrets.
func (o *object) values(field string) map[string]any {
	return o.pairs(field, func(name string) string {
		if !names.IsVariable(name) {
			return "It is not the name of a placeholder, so it was left out."
		}
		return ""
	})
}

// pairs takes a field with names and texts. refuse says why a name is left out.
func (o *object) pairs(field string, refuse func(name string) string) map[string]any {
	part, out := o.part(field), map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(part.fields)) {
		if why := refuse(name); why != "" {
			part.note(name, "%s", why)
			continue
		}
		value := part.text(name)
		if secret.Is(name, value) || secret.HasCredentials(value) {
			o.report.note(o.name, part.path+name, secret.Hidden, "It looks like a secret, so it was not copied. %s", secretHelp)
			continue
		}
		if part.has(name) {
			out[name] = value
		}
	}
	return out
}

// secretNote notes the secrets in a file of a template.
func (r *report) secretNote(template, file string, keys []string) {
	r.note("template "+template, file, nil, "The file has secrets (%s), which would be uploaded with it. Replace them by placeholders first (docs/keep-secrets.md).", clip(strings.Join(keys, ", ")))
}
