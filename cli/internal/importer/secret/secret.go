// Package secret finds the secrets in configurations, so that they are not copied.
package secret

import (
	"bytes"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
)

// Hidden replaces a secret.
const Hidden = "***"

var (
	secretName = lazyregexp.New(`(?i)(password|passwd|passphrase|secret|token|credential|(api|private|access|secret)[_.-]?key|(^|[_.-])(pass|pwd))s?$`)
	// wholePlaceholder is a value that only names another one.
	wholePlaceholder = lazyregexp.New(`^(%[^%\s]+%|\{\{[^{}]+\}\}|\$\{?[A-Za-z0-9_]+\}?)$`)
	// credentials are a user and a password in a URL.
	credentials = lazyregexp.New(`([A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*):[^/\s@]+@`)
	// secretArgument is an option of a command whose name says that its value is secret.
	secretArgument = lazyregexp.New(`(?i)((?:^|[\s"'])[-+A-Za-z0-9_./:]*?)((?:[A-Za-z0-9_.-]*[_.-])?(?:pass(?:word|wd|phrase)|secret|token|api[_.-]?key))(=|\s+)("[^"]*"|'[^']*'|[^\s"';|&]+)`)
	// quotedArgument is such an option inside quotes.
	quotedArgument = lazyregexp.New(`(?i)(["'])([-+A-Za-z0-9_./:]*?)((?:[A-Za-z0-9_.-]*[_.-])?(?:pass(?:word|wd|phrase)|secret|token|api[_.-]?key)=)([^"']*)`)
	// rconPassword is the option of usual programs that send commands to a server.
	rconPassword = lazyregexp.New(`(?i)(rcon\S*\s(?:[^;|&]*\s)?-p\s*)("[^"]*"|'[^']*'|\S+)`)
	// secretLine is a line of a configuration file that sets a secret.
	secretLine = lazyregexp.New(`(?im)^[ \t"']*((?:[\w-]+[._-])*(?:password|passwd|secret|token|api[_-]?key))["']?[ \t]*[:=][ \t]*["']?([^\s"'#,]+)["']?,?[ \t]*\r?$`)
)

// Is reports whether a field's name says that its value is secret.
func Is(field string, value any) bool {
	s, ok := value.(string)
	return ok && s != "" && secretName().MatchString(field) && !wholePlaceholder().MatchString(s)
}

// Hide replaces the passwords of URLs and of options in a text.
func Hide(s string) string {
	s = credentials().ReplaceAllString(s, "$1:"+Hidden+"@")
	s = rconPassword().ReplaceAllString(s, "${1}"+Hidden)
	s = quotedArgument().ReplaceAllString(s, "$1$2${3}"+Hidden)
	return secretArgument().ReplaceAllString(s, "$1$2${3}"+Hidden)
}

// Without returns a value of JSON with secrets replaced, for a note.
func Without(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			if out[key] = Without(item); Is(key, item) {
				out[key] = Hidden
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for n, item := range v {
			out[n] = Without(item)
		}
		return out
	case string:
		return Hide(v)
	}
	return value
}

// In returns the keys of a configuration file that hold secrets.
func In(text []byte) []string {
	var out []string
	for _, match := range secretLine().FindAllSubmatch(text, -1) {
		value := string(bytes.ToLower(match[2]))
		if wholePlaceholder().MatchString(value) || slices.Contains([]string{"true", "false", "null", "none", "~", "{}", "[]"}, value) {
			continue
		}
		if key := string(match[1]); !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// HasCredentials reports whether a text has a URL with a password.
func HasCredentials(s string) bool { return credentials().MatchString(s) }

// Command returns a command line in which secrets are placeholders, and the names of these.
func Command(line string) (masked string, found []string) {
	line = quotedArgument().ReplaceAllStringFunc(line, func(match string) string {
		part := quotedArgument().FindStringSubmatch(match)
		if part[4] == "" || wholePlaceholder().MatchString(part[4]) {
			return match
		}
		name := placeholder(part[2] + part[3])
		found = append(found, name)
		return part[1] + part[2] + part[3] + "%" + name + "%"
	})
	line = secretArgument().ReplaceAllStringFunc(line, func(match string) string {
		part := secretArgument().FindStringSubmatch(match)
		option := strings.TrimLeft(part[1], " \t\n\"'") + part[2]
		value := strings.Trim(part[4], `"'`)
		isFlag := strings.HasPrefix(option, "-") || strings.HasPrefix(option, "+")
		if part[3] != "=" && !isFlag || value == "" || wholePlaceholder().MatchString(value) {
			return match
		}
		name := placeholder(option)
		found = append(found, name)
		return part[1] + part[2] + part[3] + "%" + name + "%"
	})
	if masked = credentials().ReplaceAllString(line, "$1:%URL_PASSWORD%@"); masked != line {
		found = append(found, "URL_PASSWORD")
	}
	return masked, found
}

// Words is Command for a command line that is split into words.
func Words(words []string) (masked, found []string) {
	masked = slices.Clone(words)
	for n, word := range words {
		option, value, ok := strings.Cut(word, "=")
		at := n
		if !ok && n+1 < len(words) && (strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+")) {
			value, at = words[n+1], n+1
		}
		if !Is(option, value) {
			continue
		}
		name := placeholder(option)
		found = append(found, name)
		masked[at] = "%" + name + "%"
		if at == n {
			masked[at] = option + "=" + masked[at]
		}
	}
	return masked, found
}

// placeholder returns the name of the placeholder for an option.
func placeholder(option string) string {
	name := strings.TrimRight(strings.TrimPrefix(option, "-D"), "=")
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_", "/", "_", ":", "_", "+", "").Replace(strings.Trim(name, "-+._")))
}
