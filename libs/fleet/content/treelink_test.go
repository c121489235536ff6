package content_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// TestCheckedLinksStayInside creates random trees of links on disk and compares with how the kernel
// resolves them.
func TestCheckedLinksStayInside(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "c", "..", "..", "."})
	target := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "target"), "/")
	})
	paths := []string{"a", "b", "c", "a/a", "a/b", "b/a/c", "b/a/b", "c/b/a"}
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var m content.Manifest
		for _, p := range paths {
			if rapid.Bool().Draw(t, p) {
				m.Entries = append(m.Entries, link(p, target.Draw(t, "to")))
			}
		}
		if m.CheckLinks() != nil {
			return // also if something would be below a link
		}
		outer, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(outer)
		root := filepath.Join(outer, "tree")
		for _, e := range m.Entries {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, e.Path)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(e.Target, filepath.Join(root, e.Path)); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range m.Entries {
			to, err := filepath.EvalSymlinks(filepath.Join(root, e.Path))
			if err == nil && to != root && !strings.HasPrefix(to, root+"/") {
				t.Fatalf("%s leads to %s in %+v", e.Path, to, m.Entries)
			}
		}
	})
}
