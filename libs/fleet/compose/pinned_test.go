package compose

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestPinnedVersionsReplaceTheCurrentOnes(t *testing.T) {
	ref := func(name string) content.TemplateRef { return content.TemplateRef{Group: "default", Name: name} }
	value := "old"
	g := fleet.Group{Name: "lobby", Spec: fleet.DefaultSpec()}
	g.Spec.Templates.AllOf = []content.TemplateLayer{{TemplateRef: ref("maps")}, {TemplateRef: ref("gone")}}
	heads := []content.TemplateHead{{TemplateRef: ref("base"), Digest: "b2"}, {TemplateRef: ref("maps"), Digest: "m2"}, {TemplateRef: ref("other"), Digest: "o2"}}
	g.Pinned = []content.TemplateHead{
		{TemplateRef: ref("maps"), Digest: "m1", Variables: []content.Variable{{Key: "WORLD", Type: content.VariableString, Default: &value}}},
		{TemplateRef: ref("gone"), Digest: "g1"},
	}
	p := Compose(g, Materials{Heads: heads}, 0)
	got := map[string]string{}
	for _, l := range p.Layers {
		got[l.Name] = l.Digest
	}
	if got["base"] != "b2" || got["maps"] != "m1" || got["gone"] != "g1" || p.Variables["WORLD"] != "old" {
		t.Errorf("layers %v, variables %v", got, p.Variables)
	}
	used := map[string]string{}
	for _, h := range Used(g, heads) {
		used[h.Name] = h.Digest
	}
	if len(used) != 3 || used["maps"] != "m1" || used["base"] != "b2" {
		t.Errorf("it uses %v", used)
	}
	if heads[1].Digest != "m2" {
		t.Error("the heads were changed")
	}
}
