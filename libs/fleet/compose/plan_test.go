package compose

import (
	"encoding/json"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// heads returns template heads with the digest "<group>/<name>!".
func heads(refs ...string) (out []content.TemplateHead) {
	for _, r := range refs {
		out = append(out, content.TemplateHead{TemplateRef: content.ParseTemplateRef(r), Digest: r + "!"})
	}
	return out
}

func layer(ref string, priority int) content.TemplateLayer {
	return content.TemplateLayer{TemplateRef: content.ParseTemplateRef(ref), Priority: priority}
}

// digests returns the layers' digests in order. A missing template is "?<ref>".
func digests(layers []fleet.PlanLayer) string {
	var out []string
	for _, l := range layers {
		if l.Digest == "" {
			out = append(out, "?"+l.String())
		} else {
			out = append(out, l.Digest)
		}
	}
	return strings.Join(out, " ")
}

func TestLayersAreSelectedAndOrdered(t *testing.T) {
	all := heads("g/b", "g/a", "h/x", "default/base")
	cases := []struct {
		rule string
		sel  content.TemplateSelection
		want string
	}{
		{"none without a selection", content.TemplateSelection{Override: true}, ""},
		{"all of a list, in its order", content.TemplateSelection{Override: true, AllOf: []content.TemplateLayer{layer("g/b", 0), layer("g/a", 0)}}, "g/b! g/a!"},
		{"all of a group, by name", content.TemplateSelection{Override: true, AllInGroups: []string{"g", "h"}}, "g/a! g/b! h/x!"},
		{"a group without templates brings none", content.TemplateSelection{Override: true, AllInGroups: []string{"none"}, OneInGroups: []string{"none"}}, ""},
		{"lists come before groups", content.TemplateSelection{Override: true, AllInGroups: []string{"h"}, AllOf: []content.TemplateLayer{layer("base", 0)}}, "default/base! h/x!"},
		{"one of one", content.TemplateSelection{Override: true, OneOf: []content.TemplateLayer{layer("h/x", 0)}, AllInGroups: []string{"g"}}, "g/a! g/b! h/x!"},
		{"one of a group of one", content.TemplateSelection{Override: true, OneInGroups: []string{"h"}, OneOf: []content.TemplateLayer{layer("base", 0)}}, "default/base! h/x!"},
		{"the highest priority is pasted last", content.TemplateSelection{Override: true, AllOf: []content.TemplateLayer{layer("g/a", 9), layer("g/b", -1), layer("h/x", 3)}}, "g/b! h/x! g/a!"},
		{"groups have priority 0", content.TemplateSelection{Override: true, AllOf: []content.TemplateLayer{layer("base", 1), layer("h/x", -1)}, AllInGroups: []string{"g"}}, "h/x! g/a! g/b! default/base!"},
		{"priorities at the ends of their range are compared, not subtracted", content.TemplateSelection{Override: true, AllOf: []content.TemplateLayer{layer("g/a", math.MaxInt), layer("g/b", math.MinInt)}}, "g/b! g/a!"},
		{"without override the first of equals wins", content.TemplateSelection{AllOf: []content.TemplateLayer{layer("g/a", 0), layer("g/b", 0), layer("h/x", 0)}}, "h/x! g/b! g/a!"},
		{"without override the highest priority still wins", content.TemplateSelection{AllOf: []content.TemplateLayer{layer("g/a", 0), layer("g/b", 1)}}, "g/a! g/b!"},
		{"a template chosen twice is pasted once, where it wins", content.TemplateSelection{Override: true, AllOf: []content.TemplateLayer{layer("g/a", 0), layer("g/b", 0), layer("g/a", 5)}}, "g/b! g/a!"},
		{"also when a group brings it again", content.TemplateSelection{Override: true, AllOf: []content.TemplateLayer{layer("h/x", 0), layer("base", 0)}, AllInGroups: []string{"h"}}, "default/base! h/x!"},
		{"a missing template stands without a digest", content.TemplateSelection{Override: true, AllOf: []content.TemplateLayer{layer("g/gone", 0), layer("g/a", 0)}}, "?g/gone g/a!"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			before := slices.Clone(c.sel.AllOf)
			got := Compose(fleet.Group{Spec: fleet.GroupSpec{Templates: c.sel}}, Materials{Heads: all}, 7)
			if digests(got.Layers) != c.want || got.Override != c.sel.Override {
				t.Errorf("layers %q, want %q", digests(got.Layers), c.want)
			}
			if !slices.Equal(before, c.sel.AllOf) {
				t.Error("the group's own list was changed")
			}
		})
	}
}

func TestLayerRequiresItsStorage(t *testing.T) {
	all := heads("g/web", "g/own")
	all[0].Origin, all[1].Origin = "web", content.DirectoryOrigin
	from := func(storage, ref string) content.TemplateLayer {
		return content.TemplateLayer{TemplateRef: content.ParseTemplateRef(ref), Storage: storage}
	}
	s := fleet.GroupSpec{Templates: content.TemplateSelection{Override: true}}
	for storage, want := range map[string]string{"": "g/web! g/own!", "web": "g/web! ?g/own", content.DirectoryOrigin: "?g/web g/own!", "other": "?g/web ?g/own"} {
		s.Templates.AllOf = []content.TemplateLayer{from(storage, "g/web"), from(storage, "g/own")}
		got := Compose(fleet.Group{Spec: s}, Materials{Heads: all}, 7).Layers
		if digests(got) != want || got[0].Storage != storage {
			t.Errorf("of %q: %q, want %q", storage, digests(got), want)
		}
	}
}

func TestOneOfDrawsEvenly(t *testing.T) {
	g := fleet.Group{Spec: fleet.GroupSpec{Templates: content.TemplateSelection{
		Override: true, OneOf: []content.TemplateLayer{layer("a", 0), layer("b", 0), layer("c", 0)}, OneInGroups: []string{"g", "h"},
	}}}
	all := heads("default/a", "default/b", "default/c", "g/1", "g/2", "h/1", "h/2")
	const n = 12_000
	drawn := map[string]int{}
	for pick := range uint64(n) {
		drawn[digests(Compose(g, Materials{Heads: all}, pick).Layers)]++
	}
	if len(drawn) != 12 { // 3 × 2 × 2: the choices are independent
		t.Fatalf("%d combinations: %v", len(drawn), drawn)
	}
	for layers, times := range drawn {
		if times < 800 || times > 1200 {
			t.Errorf("%s was drawn %d times of %d", layers, times, n)
		}
	}
}

func TestPlanDependsOnPickOnlyWithAChoice(t *testing.T) {
	g := fleet.Group{Name: "lobby", Revision: 3, Spec: fleet.DefaultSpec()}
	g.Spec.Templates.AllInGroups = []string{"g"}
	if Compose(g, Materials{Heads: heads("g/a")}, 1).Digest() != Compose(g, Materials{Heads: heads("g/a")}, 2).Digest() {
		t.Error("the digest depends on the draw")
	}
}

func TestComposeIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := fleet.Group{Name: "lobby", Revision: rapid.Int64Range(1, 9).Draw(t, "revision"), Spec: fleet.DefaultSpec()}
		g.Spec.Env = rapid.MapOf(rapid.StringMatching(`[A-Z]{1,3}`), rapid.String()).Draw(t, "env")
		g.Spec.Variables = rapid.MapOf(rapid.StringMatching(`[A-Z]{1,3}`), rapid.String()).Draw(t, "variables")
		g.Spec.Templates = content.TemplateSelection{AllInGroups: []string{"g"}, OneInGroups: []string{"g", "h"}, Override: rapid.Bool().Draw(t, "override")}
		value := rapid.Custom(func(t *rapid.T) json.RawMessage {
			b, _ := json.Marshal(rapid.String().Draw(t, "value"))
			return append([]byte(" "), b...)
		})
		g.Spec.Composition.ConfigPatches = rapid.MapOf(rapid.StringMatching(`[a-z]{1,3}`), rapid.MapOf(rapid.StringMatching(`[a-z]{1,3}`), value)).Draw(t, "patches")
		hs := heads("g/a", "g/b", "g/c", "h/a", "h/b", "default/base")
		pick := rapid.Uint64().Draw(t, "pick")
		plan := Compose(g, Materials{Heads: hs}, pick)
		shuffled := rapid.Permutation(hs).Draw(t, "heads")
		if again := Compose(g, Materials{Heads: shuffled}, pick); again.Digest() != plan.Digest() {
			t.Fatalf("another order of heads, another plan: %s", cmp.Diff(plan, again))
		}
		var read fleet.Plan
		stored, err := json.Marshal(plan)
		if err != nil || json.Unmarshal(stored, &read) != nil {
			t.Fatalf("the plan cannot be stored: %v", err)
		}
		read.SetRev(4, 7)
		if read.Digest() != plan.Digest() {
			t.Fatal("where a plan was read is part of its digest")
		}
	})
}

func TestEveryFieldChangesThePlanDigest(t *testing.T) {
	g := fleet.Group{Name: "lobby", Revision: 1, Spec: fleet.DefaultSpec()}
	seen := map[string]string{Compose(g, Materials{}, 0).Digest(): "nothing"}
	for what, change := range map[string]func(*fleet.Group){
		"revision": func(g *fleet.Group) { g.Revision++ },
		"command":  func(g *fleet.Group) { g.Spec.Command = "x" },
		"memory":   func(g *fleet.Group) { g.Spec.Resources.MemoryMiB++ },
		"disk":     func(g *fleet.Group) { g.Spec.Resources.DiskMiB++ },
		"ports":    func(g *fleet.Group) { g.Spec.Ports.End++ },
		"env":      func(g *fleet.Group) { g.Spec.Env = map[string]string{"A": "B"} },
		"static":   func(g *fleet.Group) { g.Spec.Static.Enabled = true },
		"where":    func(g *fleet.Group) { g.Spec.Where.Spread = "zone" },
		"stop":     func(g *fleet.Group) { g.Spec.Stop.GraceSeconds++ },
	} {
		next := g
		change(&next)
		d := Compose(next, Materials{}, 0).Digest()
		if other, same := seen[d]; same {
			t.Errorf("%s and %s have the same digest", what, other)
		}
		seen[d] = what
	}
}

func TestPlanHasEffectivePolicy(t *testing.T) {
	for _, c := range []struct {
		static   bool
		declared fleet.OnNodeLoss
		want     fleet.OnNodeLoss
	}{
		{false, "", fleet.NodeLossReplace},
		{true, "", fleet.NodeLossWait},
		{true, fleet.NodeLossReplace, fleet.NodeLossReplace},
		{false, fleet.NodeLossStop, fleet.NodeLossStop},
	} {
		g := fleet.Group{Spec: fleet.GroupSpec{Static: fleet.Static{Enabled: c.static}, OnNodeLoss: c.declared}}
		if got := Compose(g, Materials{}, 0).OnNodeLoss; got != c.want {
			t.Errorf("static %v, declared %q: %q, want %q", c.static, c.declared, got, c.want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	cases := []struct {
		rule string
		spec fleet.GroupSpec
		want string
	}{
		{"a command stands as it is", fleet.GroupSpec{Command: "./run  %PORT%", Software: fleet.Software{JarFile: "a.jar"}}, "./run  %PORT%"},
		{"without one the jar is run with the heap", fleet.GroupSpec{Software: fleet.Software{JarFile: "server.jar"}, Resources: fleet.Resources{MemoryMiB: 1024}}, "java -Xms435M -Xmx870M -jar server.jar"},
		{"without memory there is no heap to set", fleet.GroupSpec{Software: fleet.Software{JarFile: "server.jar"}}, "java -jar server.jar"},
		{"arguments are one word each", fleet.GroupSpec{Software: fleet.Software{JarFile: "my server.jar", JVMArgs: []string{"-Da=b c", "-Dport=%PORT%", "it's"}}}, `java '-Da=b c' -Dport=%PORT% 'it'\''s' -jar 'my server.jar'`},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			if got := Compose(fleet.Group{Spec: c.spec}, Materials{}, 0).Command; got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestHeapMiB(t *testing.T) {
	for memory, want := range map[int]int{0: 0, 1: 0, 512: 435, 1024: 870, 2047: 1739, 2048: 1843, 4095: 3685, 4096: 3891, 16384: 15564} {
		if got := HeapMiB(memory); got != want {
			t.Errorf("HeapMiB(%d) = %d, want %d", memory, got, want)
		}
	}
}

func TestHeapGrowsWithMemory(t *testing.T) {
	last := 0
	for memory := range 20_000 {
		heap := HeapMiB(memory)
		if heap < last || heap > memory {
			t.Fatalf("HeapMiB(%d) = %d after %d", memory, heap, last)
		}
		last = heap
	}
}

func TestShellQuoteMakesOneWord(t *testing.T) {
	words := []string{"", "plain", "a b", "it's", "''", `\`, "$HOME", "`id`", "a\nb", "*", "~", "#x", "!", "ü", "a;b&c|d", `"`, "-Dx=%PORT%", "(", "{a,b}", "[x]", "<", "\t"}
	var line strings.Builder
	line.WriteString(`printf '%s\0'`)
	for _, w := range words {
		line.WriteString(" " + ShellQuote(w))
	}
	out, err := exec.Command("/bin/sh", "-c", line.String()).Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(words, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")); diff != "" {
		t.Error(diff)
	}
}

func TestAutomaticLayersAreBelowSelected(t *testing.T) {
	cases := []struct {
		rule     string
		group    fleet.GroupName
		platform string
		chosen   []content.TemplateLayer
		heads    []content.TemplateHead
		want     string
	}{
		{"all three, below", "lobby", "PAPER", []content.TemplateLayer{layer("g/x", -9)}, heads("default/base", "default/base-paper", "default/lobby", "g/x"), "default/base!* default/base-paper!* default/lobby!* g/x!"},
		{"those that exist", "lobby", "PAPER", nil, heads("default/lobby", "default/base-velocity"), "default/lobby!*"},
		{"none exists, none is missed", "lobby", "PAPER", nil, nil, ""},
		{"without a platform", "lobby", "", nil, heads("default/base", "default/base-"), "default/base!*"},
		{"one that is chosen lies where it was chosen", "lobby", "", []content.TemplateLayer{layer("g/x", 0), layer("base", 5)}, heads("default/base", "g/x"), "g/x! default/base!"},
		{"a group called base has it once", "base", "", nil, heads("default/base"), "default/base!*"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			g := fleet.Group{Name: c.group, Spec: fleet.GroupSpec{AutoLayers: true, Software: fleet.Software{Platform: c.platform}, Templates: content.TemplateSelection{Override: true, AllOf: c.chosen}}}
			var got []string
			for _, l := range Compose(g, Materials{Heads: c.heads}, 1).Layers {
				if l.Auto {
					l.Digest += "*"
				}
				got = append(got, l.Digest)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("layers %q, want %q", got, c.want)
			}
			g.Spec.AutoLayers = false
			for _, l := range Compose(g, Materials{Heads: c.heads}, 1).Layers {
				if l.Auto {
					t.Errorf("%s though the group has no automatic layers", l)
				}
			}
		})
	}
}
