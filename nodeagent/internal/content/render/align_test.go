package render

import (
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestAlignPairsElementsInOrder(t *testing.T) {
	for _, c := range []struct {
		rule, was, now string
		want           []int
	}{
		{
			"two elements that changed differently keep their places",
			"[{h: 1, p: 1, m: x, z: q}, {h: 1, p: 2, m: y, z: r}]",
			"[{h: 1, p: 1, m: y, z: r}, {h: 1, p: 2, m: y, z: new}]",
			[]int{0, 1},
		},
		{"of equal elements the one in order is taken", "[x, p, x, q, s]", "[p, x, q, r]", []int{1, 2, 3, 4}},
		{"an insertion at the head moves the others", "[a, b]", "[new, a, b]", []int{-1, 0, 1}},
	} {
		left := maxAlignCost
		if got := align(elements(t, c.now), elements(t, c.was), &left); !slices.Equal(got, c.want) {
			t.Errorf("%s: paired %v, want %v", c.rule, got, c.want)
		}
	}
}

// elements returns the elements of a YAML sequence.
func elements(t *testing.T, text string) []*yaml.Node {
	t.Helper()
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	return n.Content[0].Content
}
