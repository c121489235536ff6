package render_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
)

func TestGlob(t *testing.T) {
	cases := []struct {
		pattern, path string
		want          bool
	}{
		{"server.properties", "server.properties", true},
		{"./server.properties", "server.properties", true},
		{"server.properties", "deep/server.properties", false},
		{"*.yml", "a.yml", true},
		{"*.yml", "deep/a.yml", false},
		{"**/*.yml", "a.yml", true},
		{"**/*.yml", "deep/er/a.yml", true},
		{"**/*.yml", "deep/.yml", true},
		{"**/*.yml", "deep/a.yml/b", false},
		{"**/*", "deep/a", true},
		{"**/*\\*", "deep/a*", true},
		{"config/**", "config/a/b", true},
		{"config/**", "config", true},
		{"config/**/x", "config/x", true},
		{"config/**/x", "config/a/b/x", true},
		{"config/**/x", "config/a/b/y", false},
		{"a/**/b/**/c", "a/b/x/b/c", true},
		{"**/a/*/c", "a/a/b/c", true},
		{"**", "a/b", true},
		{strings.Repeat("**/", 300) + "x", "a/b/c/d/e/f/y", false}, // must return quickly
		{"a?c", "abc", true},
		{"[ab].txt", "b.txt", true},
		{"[", "[", true},
		{"[", "x", false},
	}
	for _, c := range cases {
		if got := render.Glob(c.pattern, c.path); got != c.want {
			t.Errorf("Glob(%q, %q) = %v", c.pattern, c.path, got)
		}
	}
}
