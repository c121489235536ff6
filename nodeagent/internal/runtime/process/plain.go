package process

import (
	"slices"
	"strings"
)

// plain is the words of a command that is nothing but a program with its arguments: then
// no shell is needed to read it, which spares half of what a start costs. ok is false
// for one that bash may take for anything else.
func plain(command string, env []string) (words []string, ok bool) {
	if slices.ContainsFunc(env, alters) || strings.ContainsFunc(command, func(c rune) bool { return !harmless(c) }) {
		return nil, false
	}
	words = strings.Fields(command)
	explicit := len(words) > 0 && words[0] == "exec"
	if explicit {
		words = words[1:]
	}
	switch {
	case len(words) == 0, strings.HasPrefix(words[0], "-"), strings.ContainsAny(words[0], "="):
		return nil, false
	case !explicit && !strings.Contains(words[0], "/"): // a word of bash itself, perhaps
		return nil, false
	}
	return words, true
}

// harmless reports whether a character means nothing but itself to a shell, or parts words.
func harmless(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(" ./_-+=:,@%", c)
}

// alters reports whether a variable changes what bash makes of a command.
func alters(variable string) bool {
	return strings.HasPrefix(variable, "BASH") || strings.HasPrefix(variable, "SHELLOPTS=")
}
