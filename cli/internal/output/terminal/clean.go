// Package terminal shows text of servers on a terminal and reads lines that a person types there.
package terminal

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// reset ends all colours.
const reset = "\x1b[0m"

// AppendClean appends a line of a server without what could steer a terminal: control characters, except
// tabs, and escape sequences. With colours it keeps the sequences that set colours, and resets them at
// the end. Bytes that are not UTF-8 stay as they are.
func AppendClean(dst []byte, line string, colours bool) []byte {
	coloured := false
	for len(line) > 0 {
		n := plain(line)
		dst = append(dst, line[:n]...)
		if line = line[n:]; line == "" {
			break
		}
		sequence, n := control(line)
		if colours && isColour(sequence) {
			dst, coloured = append(dst, sequence...), true
		}
		line = line[n:]
	}
	if coloured {
		dst = append(dst, reset...)
	}
	return dst
}

// Clean returns a line without control characters and escape sequences.
func Clean(line string) string {
	if plain(line) == len(line) {
		return line
	}
	return string(AppendClean(nil, line, false))
}

// plain returns how many bytes at the beginning of s are not control characters.
func plain(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\t':
		case c < ' ', c == 0x7f:
			return i
		case c == 0xc2 && i+1 < len(s) && s[i+1] < 0xa0: // U+0080 to U+009F
			return i
		case c >= 0x80 && c < 0xa0 && (i == 0 || s[i-1] < 0x80): // the same as a single byte
			return i
		}
	}
	return len(s)
}

// control returns the escape sequence or the control character at the beginning of s, and its length.
func control(s string) (string, int) {
	if s[0] != ansi.ESC {
		_, n := utf8.DecodeRuneInString(s)
		return s[:n], n
	}
	sequence, _, n, _ := ansi.DecodeSequence(s, ansi.NormalState, nil)
	return sequence, max(n, 1)
}

// isColour reports whether an escape sequence sets colours or another look of text.
func isColour(sequence string) bool {
	parameters, ok := strings.CutPrefix(sequence, "\x1b[")
	if !ok {
		return false
	}
	parameters, ok = strings.CutSuffix(parameters, "m")
	return ok && strings.Trim(parameters, "0123456789;:") == ""
}
