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

func globSegments(pattern, p []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			rest := pattern[1:]
			for i := range len(p) + 1 {
				if globSegments(rest, p[i:]) {
					return true
				}
			}
			return false
		}
		if len(p) == 0 {
			return false
		}
		if ok, err := path.Match(pattern[0], p[0]); err != nil || !ok {
			return false
		}
		pattern, p = pattern[1:], p[1:]
	}
	return len(p) == 0
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
