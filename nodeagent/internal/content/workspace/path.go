package workspace

import (
	"iter"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

// parents yields the parent directories of a path, outermost first.
func parents(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(p) {
			if p[i] == '/' && !yield(p[:i]) {
				return
			}
		}
	}
}

// protects reports whether a pattern matches p or one of its parent directories.
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

// Overwrites reports whether templates that have a file replace it in a static directory at each
// start.
func Overwrites(plan fleet.Plan, p string) bool {
	return plan.Override && !protects(plan.ProtectedPaths, p)
}
