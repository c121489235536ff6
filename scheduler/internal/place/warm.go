package place

import "slices"

// warmRatio is the share of a plan's templates that are in the node's cache; 1 when
// it has none.
func (n *Node) warmRatio(layers []string) float64 {
	if len(layers) == 0 {
		return 1
	}
	warm := 0
	for _, digest := range layers {
		if _, ok := slices.BinarySearch(n.Warm, digest); ok {
			warm++
		}
	}
	return float64(warm) / float64(len(layers))
}
