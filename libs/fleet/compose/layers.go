package compose

import (
	"cmp"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// layersOf resolves the selection in the order allOf, allInGroups, oneOf, oneInGroups, then sorts
// by priority. If a template is selected twice, the later layer stays.
func layersOf(t content.TemplateSelection, index templateIndex, pick uint64) []fleet.PlanLayer {
	var chosen []content.TemplateLayer
	chosen = append(chosen, t.AllOf...)
	for _, g := range t.AllInGroups {
		for _, ref := range index.InGroup[g] {
			chosen = append(chosen, content.TemplateLayer{TemplateRef: ref})
		}
	}
	if n := len(t.OneOf); n > 0 {
		chosen = append(chosen, t.OneOf[draw(pick, 0, n)])
	}
	for i, g := range t.OneInGroups {
		if refs := index.InGroup[g]; len(refs) > 0 {
			chosen = append(chosen, content.TemplateLayer{TemplateRef: refs[draw(pick, i+1, len(refs))]})
		}
	}
	return orderLayers(chosen, index, t.Override)
}

// AutoLayers returns the automatic templates of a group, lowest first. Templates that do not exist
// or are selected explicitly are not added.
func AutoLayers(g fleet.GroupName, platform string) []content.TemplateRef {
	refs := []content.TemplateRef{{Group: content.DefaultTemplateGroup, Name: autoBase}}
	if platform != "" {
		refs = append(refs, content.TemplateRef{Group: content.DefaultTemplateGroup, Name: autoBase + "-" + strings.ToLower(platform)})
	}
	if own := (content.TemplateRef{Group: content.DefaultTemplateGroup, Name: string(g)}); !slices.Contains(refs, own) {
		refs = append(refs, own)
	}
	return refs
}

// withAuto adds a group's automatic layers below the selected ones.
func withAuto(g fleet.Group, index templateIndex, chosen []fleet.PlanLayer) []fleet.PlanLayer {
	if !g.Spec.AutoLayers {
		return chosen
	}
	var out []fleet.PlanLayer
	for _, ref := range AutoLayers(g.Name, g.Spec.Software.Platform) {
		head, ok := index.Head[ref]
		if !ok || slices.ContainsFunc(chosen, func(l fleet.PlanLayer) bool { return l.TemplateRef == ref }) {
			continue
		}
		out = append(out, fleet.PlanLayer{TemplateRef: ref, Digest: head.Digest, Auto: true})
	}
	return append(out, chosen...)
}

// draw returns the k-th independent choice below n from one random number (splitmix64's finaliser,
// Steele et al. 2014).
func draw(pick uint64, k, n int) int {
	z := pick + uint64(k+1)*0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

// templateIndex finds template heads by reference and by group.
type templateIndex struct {
	Head    map[content.TemplateRef]*content.TemplateHead
	InGroup map[string][]content.TemplateRef
}

// digest returns the version of a layer's template, "" if its storage does not have it.
func (s templateIndex) digest(l content.TemplateLayer) string {
	h, ok := s.Head[l.TemplateRef]
	if !ok || !l.From(*h) {
		return ""
	}
	return h.Digest
}

// indexTemplates returns the index of heads.
func indexTemplates(heads []content.TemplateHead) templateIndex {
	out := templateIndex{Head: make(map[content.TemplateRef]*content.TemplateHead, len(heads)), InGroup: map[string][]content.TemplateRef{}}
	for i, h := range heads {
		out.Head[h.TemplateRef] = &heads[i]
		out.InGroup[h.Group] = append(out.InGroup[h.Group], h.TemplateRef)
	}
	for _, refs := range out.InGroup {
		slices.SortFunc(refs, func(a, b content.TemplateRef) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// autoBase is the name of the template, in DefaultTemplateGroup, of every group with automatic
// layers. The other automatic layers are autoBase-<platform in lower case> and a template with the
// group's name.
const autoBase = "base"

// orderLayers orders layers so that later ones win: by ascending priority, then in selector order
// with override, in reverse selector order without.
func orderLayers(chosen []content.TemplateLayer, index templateIndex, override bool) []fleet.PlanLayer {
	if !override {
		slices.Reverse(chosen)
	}
	slices.SortStableFunc(chosen, func(a, b content.TemplateLayer) int { return cmp.Compare(a.Priority, b.Priority) })
	seen := map[content.TemplateRef]bool{}
	var out []fleet.PlanLayer
	for _, c := range slices.Backward(chosen) {
		if !seen[c.TemplateRef] {
			seen[c.TemplateRef] = true
			out = append(out, fleet.PlanLayer{TemplateRef: c.TemplateRef, Digest: index.digest(c), Storage: c.Storage, Priority: c.Priority})
		}
	}
	slices.Reverse(out)
	return out
}
