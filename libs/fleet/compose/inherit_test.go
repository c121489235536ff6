package compose

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestInheritFillsMissingFields(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	root, parent, child := fleet.Group{Name: "root", Spec: fleet.DefaultSpec()}, fleet.Group{Name: "parent", Spec: fleet.DefaultSpec()}, fleet.Group{Name: "child", Spec: fleet.DefaultSpec()}
	root.Spec.Software.JVMArgs, root.Spec.Where.Affinity = []string{"-root"}, []string{"ssd"}
	root.Spec.Env = map[string]string{"A": "root", "B": "root"}
	root.Spec.Resources.MemoryMiB, root.Spec.Scaling.Min = 4096, 3
	root.Spec.Templates.AllOf = []content.TemplateLayer{{TemplateRef: content.TemplateRef{Group: "x", Name: "root"}}}
	parent.Spec.Software.JVMArgs = []string{"-parent"}
	parent.Spec.Env = map[string]string{"B": "parent", "C": "parent"}
	parent.Spec.Variables, parent.Hidden = map[string]string{"KEY": "k", "OWN": "p", "SEALED": "sealed:x"}, map[string]content.Visibility{"KEY": content.VisibleToAdmins, "OWN": content.VisibleToAdmins, "SEALED": content.VisibleToNobody}
	parent.Spec.Composition.ConfigPatches = map[string]map[string]json.RawMessage{"a.yml": {"x": raw("1"), "y": raw("1")}, "b.yml": {"z": raw("1")}}
	child.Spec.Env, child.Spec.Variables = map[string]string{"C": "child"}, map[string]string{"OWN": "c"}
	child.Spec.Composition.ConfigPatches = map[string]map[string]json.RawMessage{"a.yml": {"x": raw("2")}}
	before := Inherit(child, nil)

	want := child
	want.Spec.Software.JVMArgs, want.Spec.Where.Affinity, want.Spec.Templates.AllOf = []string{"-parent"}, []string{"ssd"}, root.Spec.Templates.AllOf
	want.Spec.Env = map[string]string{"A": "root", "B": "parent", "C": "child"}
	want.Spec.Variables, want.Hidden = map[string]string{"KEY": "k", "OWN": "c"}, map[string]content.Visibility{"KEY": content.VisibleToAdmins}
	want.Spec.Composition.ConfigPatches = map[string]map[string]json.RawMessage{"a.yml": {"x": raw("2"), "y": raw("1")}, "b.yml": {"z": raw("1")}}
	if diff := cmp.Diff(want, Inherit(child, []*fleet.Group{&parent, &root})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, child); diff != "" {
		t.Errorf("the group itself was changed: %s", diff)
	}
}

// drawGroup draws a group with some inherited fields and some that are not inherited.
func drawGroup(t *rapid.T, name string) fleet.Group {
	words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2)
	values := rapid.MapOfN(rapid.SampledFrom([]string{"K", "L", "M"}), rapid.SampledFrom([]string{"1", "2"}), 0, 3)
	g := fleet.Group{Name: fleet.GroupName(name), Spec: fleet.DefaultSpec()}
	g.Spec.Software.JVMArgs, g.Spec.Where.Affinity = words.Draw(t, "jvm"), words.Draw(t, "affinity")
	g.Spec.Templates.AllInGroups, g.Spec.Composition.EnabledModules = words.Draw(t, "groups"), words.Draw(t, "modules")
	g.Spec.Env, g.Spec.Variables = values.Draw(t, "env"), values.Draw(t, "variables")
	g.Spec.FileModifications = words.Draw(t, "files")
	g.Spec.Explicit = []string{}
	if rapid.Bool().Draw(t, "sets memory") {
		g.Spec.Resources.MemoryMiB = rapid.IntRange(1, 9).Draw(t, "memory")
		g.Spec.Explicit = []string{"memoryMb"}
	}
	if rapid.IntRange(0, 4).Draw(t, "record") == 0 {
		g.Spec.Explicit = nil // of an older version
	}
	g.Spec.Scaling.Min = rapid.IntRange(0, 9).Draw(t, "min")
	for key := range g.Spec.Variables {
		if rapid.Bool().Draw(t, "hidden") {
			g.Hidden = merged(g.Hidden, map[string]content.Visibility{key: content.VisibleToAdmins})
		}
	}
	if rapid.Bool().Draw(t, "patches") {
		g.Spec.Composition.ConfigPatches = map[string]map[string]json.RawMessage{}
		for file, value := range values.Draw(t, "patched") {
			g.Spec.Composition.ConfigPatches[file] = map[string]json.RawMessage{"p" + value: json.RawMessage(`"` + name + `"`)}
		}
	}
	return g
}

func TestInheritanceIsAssociative(t *testing.T) {
	same := cmpopts.EquateEmpty()
	rapid.Check(t, func(t *rapid.T) {
		g, p, q := drawGroup(t, "g"), drawGroup(t, "p"), drawGroup(t, "q")
		whole := Inherit(g, []*fleet.Group{&p, &q})
		if diff := cmp.Diff(g, Inherit(g, nil), same); diff != "" {
			t.Fatalf("of nobody something is inherited: %s", diff)
		}
		if diff := cmp.Diff(whole, Inherit(whole, []*fleet.Group{&p, &q}), same); diff != "" {
			t.Fatalf("twice is more than once: %s", diff)
		}
		middle := Inherit(p, []*fleet.Group{&q})
		if diff := cmp.Diff(whole, Inherit(g, []*fleet.Group{&middle}), same); diff != "" {
			t.Fatalf("of the parent as it is whole, it is another: %s", diff)
		}
		if whole.Spec.Scaling.Min != g.Spec.Scaling.Min || !cmp.Equal(whole.Spec.FileModifications, g.Spec.FileModifications) || whole.Name != g.Name {
			t.Fatal("what is the group's own was inherited")
		}
		want := g.Spec.Resources.MemoryMiB
		for _, from := range []fleet.Group{g, p, q} {
			if from.Spec.Sets("memoryMb") {
				want = from.Spec.Resources.MemoryMiB
				if source := Sources(&g, []*fleet.Group{&p, &q})["memoryMb"]; source != from.Name {
					t.Fatalf("the memory comes from %q, and its source is %q", from.Name, source)
				}
				break
			}
		}
		if whole.Spec.Resources.MemoryMiB != want {
			t.Fatalf("it has %d MiB, and the nearest group that sets them %d", whole.Spec.Resources.MemoryMiB, want)
		}
		for key, value := range g.Spec.Env {
			if whole.Spec.Env[key] != value {
				t.Fatalf("%s is %q in place of its own %q", key, whole.Spec.Env[key], value)
			}
		}
		for key := range whole.Spec.Variables { // hidden where it was defined
			for _, from := range []fleet.Group{g, p, q} {
				if _, has := from.Spec.Variables[key]; has {
					if whole.Hidden[key] != from.Hidden[key] {
						t.Fatalf("%s is hidden as %q, and where it is from as %q", key, whole.Hidden[key], from.Hidden[key])
					}
					break
				}
			}
		}
	})
}

func TestEachFieldIsInheritedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range fields {
		for _, name := range f.names {
			if seen[name] {
				t.Errorf("%s is twice in the table", name)
			}
			seen[name] = true
		}
	}
	// What one field takes must leave every other field as it is.
	other := fleet.DefaultSpec()
	other.Command, other.Ports, other.Resources.CPU, other.Stop.Signal, other.Where.Affinity = "run", fleet.PortRange{Start: 1, End: 2}, 7, "INT", []string{"ssd"}
	for _, f := range fields {
		own := fleet.DefaultSpec()
		f.take(&own, &other)
		for _, g := range fields {
			if before := fleet.DefaultSpec(); f.names[0] != g.names[0] {
				back := own
				g.take(&back, &before)
				if !cmp.Equal(own, back, cmpopts.EquateEmpty()) {
					t.Errorf("%s takes %s too", f.names[0], g.names[0])
				}
			}
		}
	}
}

func TestAncestorsAlwaysTerminate(t *testing.T) {
	groups := map[fleet.GroupName]*fleet.Group{}
	add := func(name, parent string) *fleet.Group {
		g := &fleet.Group{Name: fleet.GroupName(name), Spec: fleet.GroupSpec{Parent: fleet.GroupName(parent)}}
		groups[g.Name] = g
		return g
	}
	of := func(n fleet.GroupName) (*fleet.Group, bool) { g, ok := groups[n]; return g, ok }
	names := func(g *fleet.Group) (out string) {
		for _, a := range Ancestors(g, of) {
			out += string(a.Name) + " "
		}
		return out
	}
	add("b", "c")
	add("c", "a")
	if got := names(add("a", "b")); got != "b c " {
		t.Errorf("of a cycle: %q", got)
	}
	if got := names(add("own", "own")); got != "" {
		t.Errorf("of itself: %q", got)
	}
	if got := names(add("orphan", "none")); got != "" {
		t.Errorf("of a parent that is not there: %q", got)
	}
	for n := range 20 {
		add(fmt.Sprint("n", n), fmt.Sprint("n", n+1))
	}
	if got := len(Ancestors(groups["n0"], of)); got != MaxAncestors {
		t.Errorf("%d ancestors", got)
	}
}
