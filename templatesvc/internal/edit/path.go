package edit

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Bounds of a path, in bytes and names.
const (
	maxPath  = 1024
	maxName  = 255
	maxDepth = 64
)

// lockName is the agent's own file in an instance's directory: no template brings it.
const lockName = ".orrery-lock"

// Clean turns a path that somebody wrote into one that a manifest may hold; "", "."
// and "/" are the template itself, which is "". Malformed, saying why, for everything
// that is absolute, climbs, or could not stand in a file system.
func Clean(p string) (string, error) {
	if p == "" || p == "." || p == "/" {
		return "", nil
	}
	if why := unfit(p); why != "" {
		return "", &errs.Error{Kind: errs.Malformed, Field: "path", Message: why}
	}
	return p, nil
}

// unfit is what is wrong with a path, "" when nothing is.
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
			return "must name what lies in the template: no empty names, no . and no .."
		case len(n) > maxName:
			return "has a name of more than 255 bytes"
		}
	}
	if names[0] == lockName {
		return "is kept for the agent: " + lockName + " stands in the directory of a static instance"
	}
	return ""
}

// named is Clean for what must not be the template itself.
func named(p string) (string, error) {
	p, err := Clean(p)
	if err == nil && p == "" {
		return "", &errs.Error{Kind: errs.Malformed, Field: "path", Message: "is required: it names a file in the template"}
	}
	return p, err
}

// parents are the directories a path lies in, the nearest first, without the template itself.
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

// within reports whether p is dir or lies below it.
func within(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// regular reports whether an entry is a file with content.
func regular(e fleet.ManifestEntry) bool { return e.Kind == fleet.FileRegular }
