// Package ansi takes from a line what a terminal would act on instead of show it, so
// that whoever looks for text in output sees what a person does: the console's search,
// readiness by a line and the reading of crashes share it.
//
// It is pure. What it takes away (ECMA-48, and what terminals add to it):
//
//	ESC [ …  @-~           colours, the cursor
//	ESC ] …  BEL or ESC \  titles and links; likewise after ESC P X ^ _
//	ESC …    0-~           everything else
package ansi

import "strings"

// Strip is a line without its escape sequences; one that is not finished reaches to
// where it cannot go on. No ESC is left. A line without one is returned as it is.
func Strip(line string) string {
	before, rest, found := strings.Cut(line, "\x1b")
	if !found {
		return line
	}
	var out strings.Builder
	out.Grow(len(line))
	for found {
		out.WriteString(before)
		before, rest, found = strings.Cut(rest[sequence(rest):], "\x1b")
	}
	out.WriteString(before)
	return out.String()
}

// sequence is the length of the sequence that begins after its ESC.
func sequence(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] {
	case '[':
		return control(s)
	case ']', 'P', 'X', '^', '_':
		return text(s)
	}
	n := skip(s, 0, ' ', '/')
	return n + skip(s[n:min(n+1, len(s))], 0, '0', '~')
}

// control is a sequence of parameters, what stands between, and one last byte.
func control(s string) int {
	n := skip(s, 1, '0', '?')
	n = skip(s, n, ' ', '/')
	return n + skip(s[n:min(n+1, len(s))], 0, '@', '~')
}

// text is a sequence that holds text, up to its end or the next ESC.
func text(s string) int {
	end := strings.IndexAny(s, "\a\x1b")
	switch {
	case end < 0:
		return len(s)
	case s[end] == '\a':
		return end + 1
	case end+1 < len(s) && s[end+1] == '\\':
		return end + 2
	}
	return end
}

// skip is the index of the first byte from an index on that is not within two.
func skip(s string, from int, low, high byte) int {
	for from < len(s) && s[from] >= low && s[from] <= high {
		from++
	}
	return from
}
