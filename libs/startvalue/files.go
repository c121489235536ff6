package startvalue

import (
	"path"
	"slices"
	"strings"
	"unicode"
)

// Files returns the words of a command that name files which are read as code: the script of a
// shell or an interpreter, and an @-file of options. It also searches the program of bash -c. It
// may return words that are not files.
func Files(command string) (files []string) {
	separates := func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune("'\"`;&|()<>", c) }
	script := false // the script of a shell or an interpreter follows
	for _, word := range strings.FieldsFunc(command, separates) {
		name := path.Base(word)
		kind := strings.TrimRight(name, versions)
		switch {
		case strings.HasPrefix(word, "@"):
			files = append(files, path.Clean(word[1:]))
		case word == ".", name == "source", slices.Contains(shells, kind), slices.Contains(interpreters, kind):
			script = true
		case script && !strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "+"):
			files = append(files, path.Clean(word))
			script = !strings.ContainsAny(word, "./") // it may be the word of an option
		}
	}
	return files
}
