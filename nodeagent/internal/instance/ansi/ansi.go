// Package ansi removes the escape sequences of terminals from a line, so that a search in
// output finds the text that a person sees. The console's search, readiness checks and
// crash reports use it.
//
// It is pure. It removes the sequences of ECMA-48 and common extensions:
//
//	ESC [ …  @-~           colours and cursor movement
//	ESC ] …  BEL or ESC \  titles and links; likewise after ESC P X ^ _
//	ESC …    0-~           all others
package ansi

import "strings"

// Strip removes the escape sequences from a line. An incomplete sequence ends at the first
// byte that cannot belong to it. The result contains no ESC.
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

// sequence is the length of the sequence whose ESC precedes s.
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

// control is the length of a control sequence: parameters, intermediate bytes, one final byte.
func control(s string) int {
	n := skip(s, 1, '0', '?')
	n = skip(s, n, ' ', '/')
	return n + skip(s[n:min(n+1, len(s))], 0, '@', '~')
}

// text is the length of a sequence that contains text, up to its terminator or the next ESC.
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

// skip returns the index of the first byte at or after from that is outside low to high.
func skip(s string, from int, low, high byte) int {
	for from < len(s) && s[from] >= low && s[from] <= high {
		from++
	}
	return from
}
