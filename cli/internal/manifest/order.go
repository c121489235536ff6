package manifest

import (
	"slices"

	"github.com/orreryhq/orrery/cli/internal/kinds"
)

// rank returns the place of a kind among the kinds of documents: a kind comes after those that its
// objects refer to.
func rank(kind *kinds.Kind) int {
	return slices.Index([]string{"Node", "Role", "Binding", "Quota", "Source", "Group", "Network", "Schedule", "Overlay", "Notice"}, kind.Document)
}

// Ordered returns documents in the order in which they must be applied: kinds in the order of
// their ranks, and groups after the groups that they name. Groups that name each other in a circle
// stay in their order; the server says what is wrong with them.
func Ordered(documents []Document) []*Document {
	pointers := make([]*Document, len(documents))
	byKey := map[string]*Document{}
	for i := range documents {
		pointers[i] = &documents[i]
		byKey[documents[i].Key()] = pointers[i]
	}
	slices.SortStableFunc(pointers, func(a, b *Document) int { return rank(a.Object()) - rank(b.Object()) })
	var out []*Document
	seen := map[*Document]bool{}
	var visit func(d *Document)
	visit = func(d *Document) {
		if seen[d] {
			return
		}
		seen[d] = true
		for _, name := range groupsNamed(d) {
			if other := byKey[Key(d.Object(), name)]; other != nil {
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
func groupsNamed(d *Document) []string {
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
