package template_test

import (
	"path"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

func TestPathsAndLinksStayInside(t *testing.T) {
	for p, want := range map[string]bool{
		"a": true, "a/b.txt": true, "..a/b": true, "": false, ".": false, "..": false, "../a": false, "/a": false,
		"a/../b": false, "a//b": false, "a/": false, `a\b`: false, "a\x00b": false, strings.Repeat("a", 2000): false,
	} {
		if template.SafePath(p) != want {
			t.Errorf("SafePath(%q) = %v", p, !want)
		}
	}
	for _, c := range []struct {
		at, to string
		want   bool
	}{
		{"a/b", "c", true}, {"a/b", "../c", true}, {"a/b", "..", true}, {"a/b", "../../c", false}, {"b", "../c", false}, {"b", "/etc/passwd", false}, {"b", "", false},
	} {
		if template.SafeLink(c.at, c.to) != c.want {
			t.Errorf("SafeLink(%q, %q) = %v", c.at, c.to, !c.want)
		}
	}
}

func TestTheSameTreeHasTheSameDigestWhateverItsOrder(t *testing.T) {
	a := fleet.ManifestEntry{Path: "a", Mode: 0o644, Size: 1, SHA256: "x"}
	b := fleet.ManifestEntry{Path: "b", Mode: 0o644, Size: 1, SHA256: "y"}
	_, one, err1 := template.Canonical(fleet.Manifest{Entries: []fleet.ManifestEntry{a, b}})
	_, two, err2 := template.Canonical(fleet.Manifest{Entries: []fleet.ManifestEntry{b, a}})
	if err1 != nil || err2 != nil || one != two {
		t.Errorf("%s %v, %s %v", one, err1, two, err2)
	}
	if _, _, err := template.Canonical(fleet.Manifest{Entries: []fleet.ManifestEntry{a, a}}); err == nil {
		t.Error("a path that stands twice was taken")
	}
}

func FuzzSafePath(f *testing.F) {
	for _, s := range []string{"a/b", "../a", "/a", "a/../..", "./a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if template.SafePath(p) && !strings.HasPrefix(path.Join("/tree", p), "/tree/") {
			t.Errorf("%q leaves the root", p)
		}
	})
}
