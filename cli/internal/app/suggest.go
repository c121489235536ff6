package app

import "fmt"

// maxDistance is how many letters may differ in a name that is suggested.
const maxDistance = 2

// DidYouMean returns a hint with the most similar of names, or otherwise.
func DidYouMean(name string, names []string, otherwise string) string {
	if name == "" {
		return otherwise
	}
	best, bestDistance := "", maxDistance+1
	for _, candidate := range names {
		if d := distance(name, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	if best == "" {
		return otherwise
	}
	return fmt.Sprintf("did you mean %s?", best)
}

// distance returns how many letters must be inserted, removed or replaced to make a from b
// (Levenshtein).
func distance(a, b string) int {
	previous := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := range len(a) {
		current := make([]int, len(b)+1)
		current[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			current[j+1] = min(previous[j]+cost, previous[j+1]+1, current[j]+1)
		}
		previous = current
	}
	return previous[len(b)]
}
