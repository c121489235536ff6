// Package suggest finds the known name that a mistyped one probably means.
package suggest

import "strings"

const (
	// longest is the maximum length of a name, in bytes, for which suggestions are made.
	longest = 64
	// stem is the minimum length of a prefix that matches a longer name.
	stem = 3
)

// Nearest returns the known name nearest to a wrong one, or else the shortest that starts with it,
// or "". It ignores case.
func Nearest(wrong string, known []string) string {
	best := Within(wrong, known, len(wrong)/3+1)
	if best != "" || len(wrong) < stem || len(wrong) > longest {
		return best
	}
	wrong = strings.ToLower(wrong)
	for _, k := range known {
		if strings.HasPrefix(strings.ToLower(k), wrong) && (best == "" || len(k) < len(best)) {
			best = k
		}
	}
	return best
}

// Within returns the known name nearest to a wrong one, with at most distance insertions,
// deletions and substitutions, or "". It ignores case.
func Within(wrong string, known []string, distance int) string {
	if len(wrong) > longest {
		return ""
	}
	wrong = strings.ToLower(wrong)
	best := ""
	for _, k := range known {
		if d := editDistance(wrong, strings.ToLower(k)); d <= distance && (best == "" || d < distance) {
			best, distance = k, d
		}
	}
	return best
}

// editDistance returns the Levenshtein distance of a and b in bytes. It keeps one row of the
// matrix.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
