package workspace

import (
	"iter"
	"path"
	"strings"
)

// safePath reports whether p is relative, clean, slash-separated and stays inside.
func safePath(p string) bool {
	return p != "" && p != "." && !strings.ContainsAny(p, "\x00\\") && !path.IsAbs(p) &&
		path.Clean(p) == p && p != ".." && !strings.HasPrefix(p, "../")
}

// safeLink reports whether a link at p to target stays inside.
func safeLink(p, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsAny(target, "\x00\\") {
		return false
	}
	joined := path.Join(path.Dir(p), target)
	return joined == "." || safePath(joined)
}

// parents yields the directories above a path, outermost first.
func parents(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(p) {
			if p[i] == '/' && !yield(p[:i]) {
				return
			}
		}
	}
}

// glob reports whether a path matches a pattern: * and ? within a segment, [a-z]
// classes, and ** for any number of segments. A malformed pattern matches only itself.
func glob(pattern, p string) bool {
	pattern = path.Clean(pattern)
	return pattern == p || globSegments(strings.Split(pattern, "/"), strings.Split(p, "/"))
}

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

// isPattern reports whether a listed name is a pattern rather than one file's path.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// protects reports whether a protected path covers p: the path itself, all below
// it, or a pattern that matches p or a directory above it.
func protects(protected []string, p string) bool {
	for _, pattern := range protected {
		if glob(pattern, p) {
			return true
		}
		for parent := range parents(p) {
			if glob(pattern, parent) {
				return true
			}
		}
	}
	return false
}
