package config

import "strings"

// didYouMean suggests the known name nearest to a wrong one, or nothing if none is near.
func didYouMean(wrong string, known []string, prefix string) string {
	best, distance := "", len(wrong)/3+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(wrong), k); d <= distance && (best == "" || d < distance) {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + prefix + best + "?"
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
