package manifest

import (
	"slices"
	"testing"
)

func TestOrdered(t *testing.T) {
	documents, err := Parse("a.yaml", []byte(`- {kind: Network, name: main, lobbyGroup: b}
- {kind: Group, name: c, dependsOn: [b, x]}
- {kind: Notice, name: n}
- {kind: Group, name: b, parent: a}
- {kind: Role, name: R}
- {kind: Group, name: a}
- {kind: Group, name: y, parent: z}
- {kind: Group, name: z, parent: y}
`))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range Ordered(documents) {
		names = append(names, d.Name)
	}
	if want := []string{"R", "a", "b", "c", "z", "y", "main", "n"}; !slices.Equal(names, want) {
		t.Errorf("got %v, not %v", names, want)
	}
}
