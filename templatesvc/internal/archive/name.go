package archive

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// Limits of a path, as in the file systems of nodes.
const (
	maxPath  = 1024
	maxName  = 255
	maxDepth = 64
)

// clean converts an entry's name into a path inside the tree; "." is the root. It refuses
// names that could leave the tree on any operating system, instead of repairing them.
func clean(name string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", errs.New(errs.Malformed, "the entry %s %s", quoted(name), why)
	}
	switch {
	case !utf8.ValidString(name):
		return refuse("has a name that is not UTF-8: rename it and pack it again")
	case strings.ContainsRune(name, 0):
		return refuse("has a NUL in its name: rename it and pack it again")
	case strings.ContainsRune(name, '\\'):
		return refuse(`has a \ in its name: pack it with / between directories`)
	case strings.HasPrefix(name, "/"):
		return refuse("is an absolute path: pack it relative to the template's directory")
	case drive(name):
		return refuse("begins with a drive: pack it relative to the template's directory")
	case strings.ContainsFunc(name, unicode.IsControl):
		return refuse("has a control character in its name: rename it and pack it again")
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == ".." {
			return refuse("leads out of the template by ..: pack it relative to the template's directory")
		}
		if len(segment) > maxName {
			return refuse("has a name longer than 255 bytes: shorten it")
		}
	}
	p := path.Clean(name)
	if len(p) > maxPath || strings.Count(p, "/") >= maxDepth {
		return refuse("lies too deep: 64 directories and 1,024 bytes are the most")
	}
	return p, nil
}

func drive(name string) bool {
	return len(name) >= 2 && name[1] == ':' && (name[0]|0x20 >= 'a' && name[0]|0x20 <= 'z')
}
