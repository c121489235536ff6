package declaring

import (
	"slices"

	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
)

// kindOrder lists the kinds of documents so that a kind comes after those that its objects refer to.
var kindOrder = []string{"Role", "Quota", "Source", "Group", "Network", "Schedule", "Overlay", "Notice"}

func rank(kind *kinds.Kind) int { return slices.Index(kindOrder, kind.Document) }

// ordered returns documents in the order in which they must be applied: kinds in the order of
// kindOrder, and groups after the groups that they name. Groups that name each other in a circle
// stay in their order; the server says what is wrong with them.
func ordered(documents []manifest.Document) []*manifest.Document {
	pointers := make([]*manifest.Document, len(documents))
	byKey := map[string]*manifest.Document{}
	for i := range documents {
		pointers[i] = &documents[i]
		byKey[documents[i].Key()] = pointers[i]
	}
	slices.SortStableFunc(pointers, func(a, b *manifest.Document) int { return rank(a.Object()) - rank(b.Object()) })
	var out []*manifest.Document
	seen := map[*manifest.Document]bool{}
	var visit func(d *manifest.Document)
	visit = func(d *manifest.Document) {
		if seen[d] {
			return
		}
		seen[d] = true
		for _, name := range groupsNamed(d) {
			if other := byKey[manifest.Key(d.Object(), name)]; other != nil {
				visit(other)
			}
		}
		out = append(out, d)
	}
	for _, d := range pointers {
		visit(d)
	}
	return out
}

// groupsNamed returns the groups that the document of a group refers to.
func groupsNamed(d *manifest.Document) []string {
	if d.Kind != "Group" {
		return nil
	}
	var names []string
	for _, field := range []string{"parent", "dependsOn", "fallbackGroup", "bedrockProxyGroup"} {
		switch v := d.Fields[field].(type) {
		case string:
			names = append(names, v)
		case []any:
			for _, item := range v {
				name, _ := item.(string) // the server refuses other types
				names = append(names, name)
			}
		}
	}
	return names
}
