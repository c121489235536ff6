package content_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestDiffListsEveryChange(t *testing.T) {
	script, moved := file("run.sh", "5"), file("run.sh", "5")
	moved.Mode = 0o755
	a := tree(file("same", "1"), file("gone", "2"), file("other", "3"), script, link("l", "x"))
	b := tree(file("same", "1"), file("new", "2"), file("other", "4"), moved, file("l", "1"))
	var got []string
	for _, c := range content.Diff(a, b) {
		got = append(got, fmt.Sprintf("%s %s %v %v", c.Change, c.Path, c.Old != nil, c.New != nil))
	}
	want := []string{"REMOVED gone true false", "CHANGED l true true", "ADDED new false true", "CHANGED other true true", "MODE run.sh true true"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestDiffIgnoresChunking(t *testing.T) {
	whole := content.ManifestEntry{Path: "big", Size: 2, SHA256: sumOf("1")}
	cut := whole
	cut.Chunks = []content.Chunk{{SHA256: sumOf("2"), Size: 2}}
	if d := content.Diff(tree(whole), tree(cut)); d != nil {
		t.Errorf("got %v", d)
	}
}

func TestMerge3JoinsBothSides(t *testing.T) {
	base := tree(file("a", "1"), file("b", "1"), file("c", "1"), file("d", "1"))
	for name, c := range map[string]struct {
		ours, theirs, want content.Manifest
		conflicts          []string
	}{
		"each changes another file": {
			tree(file("a", "2"), file("b", "1"), file("c", "1"), file("d", "1")), tree(file("a", "1"), file("b", "3"), file("c", "1"), file("d", "1")),
			tree(file("a", "2"), file("b", "3"), file("c", "1"), file("d", "1")), nil,
		},
		"both change one file": {
			tree(file("a", "2"), file("b", "1"), file("c", "1"), file("d", "1")), tree(file("a", "3"), file("b", "1"), file("c", "1"), file("d", "1")),
			tree(file("a", "3"), file("b", "1"), file("c", "1"), file("d", "1")),
			[]string{"a"},
		},
		"both change it to the same": {
			tree(file("a", "2")), tree(file("a", "2")), tree(file("a", "2")), nil,
		},
		"one removes what the other changes": {
			tree(file("b", "1"), file("c", "1"), file("d", "1")), tree(file("a", "3"), file("b", "1"), file("c", "1"), file("d", "1")),
			tree(file("a", "3"), file("b", "1"), file("c", "1"), file("d", "1")),
			[]string{"a"},
		},
		"both remove it": {tree(file("a", "1")), tree(file("a", "1")), tree(file("a", "1")), nil},
		"ours puts a file where theirs needs a directory": {
			tree(file("n", "2"), file("a", "1")), tree(file("n/x", "3"), file("a", "1")), tree(file("a", "1"), file("n/x", "3")), []string{"n"},
		},
		"theirs puts a file where ours needs a directory": {
			tree(file("n/x", "2"), file("a", "1")), tree(file("n", "3"), file("a", "1")), tree(file("a", "1"), file("n", "3")), []string{"n/x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, conflicts := content.Merge3(base, c.ours, c.theirs)
			if d := cmp.Diff(c.want, got); d != "" || !slices.Equal(conflicts, c.conflicts) {
				t.Errorf("conflicts %v\n%s", conflicts, d)
			}
		})
	}
}

func TestMerge3JoinsVariablesByKey(t *testing.T) {
	of := func(vs ...content.Variable) content.Manifest { return content.Manifest{Variables: vs} }
	a, b, c := content.Variable{Key: "A"}, content.Variable{Key: "B"}, content.Variable{Key: "C"}
	changed := content.Variable{Key: "A", Required: true}
	got, _ := content.Merge3(of(a, b), of(changed, b, c), of(a))
	if d := cmp.Diff([]content.Variable{changed, c}, got.Variables); d != "" {
		t.Error(d)
	}
}

func drawTree(t *rapid.T, name string) content.Manifest {
	var m content.Manifest
	for _, p := range []string{"a", "b", "c/d", "c/e", "f"} {
		if digit := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, name+p); digit != "" {
			m.Entries = append(m.Entries, file(p, digit))
		}
	}
	return m
}

func TestMerge3Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, ours, theirs := drawTree(t, "base"), drawTree(t, "ours"), drawTree(t, "theirs")
		if m, c := content.Merge3(base, ours, base); c != nil || content.Diff(m, ours) != nil {
			t.Fatalf("their side did nothing: %v, conflicts %v", content.Diff(ours, m), c)
		}
		if m, c := content.Merge3(base, base, theirs); c != nil || content.Diff(m, theirs) != nil {
			t.Fatalf("our side did nothing: %v, conflicts %v", content.Diff(theirs, m), c)
		}
		one, fought := content.Merge3(base, ours, theirs)
		other, foughtToo := content.Merge3(base, theirs, ours)
		if !slices.Equal(fought, foughtToo) {
			t.Fatalf("conflicts differ by side: %v, %v", fought, foughtToo)
		}
		for _, c := range content.Diff(one, other) {
			if !slices.Contains(fought, c.Path) {
				t.Fatalf("%s depends on the side without being a conflict", c.Path)
			}
		}
		if _, _, err := one.Canonical(limits); err != nil {
			t.Fatal(err)
		}
	})
}
