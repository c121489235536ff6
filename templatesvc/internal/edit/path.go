package edit

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Limits of a path: bytes, bytes per name, and names.
const (
	maxPath  = 1024
	maxName  = 255
	maxDepth = 64
)

// lockName is the agent's lock file in an instance's directory. Templates must not contain
// it.
const lockName = ".orrery-lock"

// Clean checks a path from a caller and returns it as a manifest has it. "", "." and "/"
// are the template itself, which is "". It returns Malformed, with the reason, for paths
// that are absolute, leave the template or are not valid in a file system.
func Clean(p string) (string, error) {
	if p == "" || p == "." || p == "/" {
		return "", nil
	}
	if why := unfit(p); why != "" {
		return "", &errs.Error{Kind: errs.Malformed, Field: "path", Message: why}
	}
	return p, nil
}

// unfit returns what is wrong with a path, or "".
func unfit(p string) string {
	switch {
	case !utf8.ValidString(p):
		return "is not valid UTF-8"
	case len(p) > maxPath:
		return "is longer than 1024 bytes"
	case path.IsAbs(p):
		return "must be relative to the template: leave the slash at its beginning out"
	case strings.Contains(p, `\`):
		return `must be written with / between names, without \`
	case strings.ContainsFunc(p, unicode.IsControl):
		return "holds control characters"
	}
	names := strings.Split(p, "/")
	if len(names) > maxDepth {
		return "is more than 64 directories deep"
	}
	for _, n := range names {
		switch {
		case n == "" || n == "." || n == "..":
			return "must be a path inside the template, without empty names, . and .."
		case len(n) > maxName:
			return "has a name of more than 255 bytes"
		}
	}
	if names[0] == lockName {
		return "is reserved: the agent writes " + lockName + " into the directory of a static instance"
	}
	return ""
}

// named is like Clean, but refuses the template itself.
func named(p string) (string, error) {
	p, err := Clean(p)
	if err == nil && p == "" {
		return "", &errs.Error{Kind: errs.Malformed, Field: "path", Message: "is required: it names a file in the template"}
	}
	return p, err
}

// parents yields the parent directories of a path, the nearest first, without the template
// itself.
func parents(p string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for {
			i := strings.LastIndexByte(p, '/')
			if i < 0 {
				return
			}
			if p = p[:i]; !yield(p) {
				return
			}
		}
	}
}

// within reports whether p is dir or inside it.
func within(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// regular reports whether an entry is a regular file.
func regular(e content.ManifestEntry) bool { return e.Kind == content.FileRegular }
