package templates

import (
	"testing"
)

func TestAMatchIsBoundedAsJavaScriptCounts(t *testing.T) {
	for _, c := range []struct {
		preview, text string
		start, end    int
	}{
		{"motd=Hello", "HELLO", 5, 10},
		{"über 🌍 world", "world", 8, 13},
		{"a 🌍 b", "🌍", 2, 4},
		{"Hello hello", "hello", 0, 5},
		{"cut off", "cut off here", 0, 0},
	} {
		if start, end := matchIn(c.preview, c.text); start != c.start || end != c.end {
			t.Errorf("%q in %q: %d to %d, want %d to %d", c.text, c.preview, start, end, c.start, c.end)
		}
	}
}
