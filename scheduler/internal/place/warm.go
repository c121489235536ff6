package place

import "slices"

// warmRatio returns the share of a plan's templates that the node has cached. It is 1 for a
// plan without templates.
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
