// Package spelling finds what was meant by a name that nobody knows.
package spelling

import "strings"

const (
	// longest is how long a name may be, in bytes, that something near is looked for.
	longest = 64
	// stem is how long the beginning of a name has to be to stand for it.
	stem = 3
)

// Nearest is the known name nearest to a wrong one, or else the shortest that begins with
// it; "" when none is near. Capitals do not count.
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

// Within is the known name that a wrong one is nearest to, by at most so many insertions,
// deletions and substitutions; "" when none is so near. Capitals do not count.
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

// editDistance counts the insertions, deletions and substitutions of bytes that
// turn a into b (Levenshtein), with one row of the matrix at a time.
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
