package render

import (
	"path"
	"slices"
	"strings"
)

// Glob reports whether a path matches a pattern. It supports * and ? within a segment, classes
// like [a-z], and ** for any number of segments. A malformed pattern matches only itself.
func Glob(pattern, p string) bool {
	if end, ok := strings.CutPrefix(pattern, "**/*"); ok && !strings.ContainsAny(end, `*?[\/`) {
		return strings.HasSuffix(p, end) // fast path for the most frequent kind of pattern
	}
	pattern = path.Clean(pattern)
	return pattern == p || globSegments(strings.Split(pattern, "/"), strings.Split(p, "/"))
}

// AnyGlob reports whether a path matches one of the patterns.
func AnyGlob(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return Glob(pattern, p) })
}

// IsGlob reports whether a name is a pattern and not the path of one file.
func IsGlob(name string) bool { return strings.ContainsAny(name, "*?[") }

// globSegments matches segments. It backtracks only to the last **, which is sufficient and
// limits it to len(pattern) × len(p) steps.
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
