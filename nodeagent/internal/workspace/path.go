package workspace

import (
	"iter"
	"path"
	"strings"

	"github.com/orreryhq/orrery/nodeagent/internal/render"
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

// protects reports whether a protected path covers p: the path itself, all below
// it, or a pattern that matches p or a directory above it.
func protects(protected []string, p string) bool {
	for _, pattern := range protected {
		if render.Glob(pattern, p) {
			return true
		}
		for parent := range parents(p) {
			if render.Glob(pattern, parent) {
				return true
			}
		}
	}
	return false
}
