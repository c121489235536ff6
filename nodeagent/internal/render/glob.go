package render

import (
	"path"
	"slices"
	"strings"
)

// Glob reports whether a path matches a pattern: * and ? within a segment, [a-z]
// classes, and ** for any number of segments. A malformed pattern matches only itself.
func Glob(pattern, p string) bool {
	if end, ok := strings.CutPrefix(pattern, "**/*"); ok && !strings.ContainsAny(end, `*?[\/`) {
		return strings.HasSuffix(p, end) // most patterns are such, and a template may have many files
	}
	pattern = path.Clean(pattern)
	return pattern == p || globSegments(strings.Split(pattern, "/"), strings.Split(p, "/"))
}

// AnyGlob reports whether a path matches one of the patterns.
func AnyGlob(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return Glob(pattern, p) })
}

// IsGlob reports whether a listed name is a pattern rather than one file's path.
func IsGlob(name string) bool { return strings.ContainsAny(name, "*?[") }

// globSegments goes back to the last ** only, which is enough: so it takes
// pattern × path steps at most, however many ** there are.
func globSegments(pattern, p []string) bool {
	i, j, star, mark := 0, 0, -1, 0
	for j < len(p) {
		switch {
		case i < len(pattern) && pattern[i] == "**":
			star, mark = i, j
			i++
		case i < len(pattern) && matches(pattern[i], p[j]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == "**" {
		i++
	}
	return i == len(pattern)
}

func matches(pattern, segment string) bool {
	ok, err := path.Match(pattern, segment)
	return err == nil && ok
}
