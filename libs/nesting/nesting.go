// Package nesting bounds how deeply JSON is nested. encoding/json reads 10,000 levels. A
// value with almost as many is read, but a record that wraps it in a few more is not: once
// stored, it could never be read again.
package nesting

// Max is the depth of the deepest JSON body that a service reads. Records may have twice as
// many levels, because they wrap values of bodies.
const Max = 100

// Exceeds reports whether JSON has more than a number of levels. It expects valid JSON.
func Exceeds(text []byte, levels int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > levels {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}
