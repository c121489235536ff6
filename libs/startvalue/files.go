package startvalue

import (
	"path"
	"slices"
	"strings"
	"unicode"
)

// Files are the words of a command that name a file which is read as code: the script of a
// shell or an interpreter, and the file of options behind an @. It also finds those in the
// program of bash -c. It may return words that name no file.
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
