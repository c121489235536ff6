package edit

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// Text reports whether content is text: UTF-8 without NUL.
func Text(content []byte) bool {
	return bytes.IndexByte(content, 0) < 0 && utf8.Valid(content)
}

// fold converts ASCII letters to lower case, so that byte offsets do not change.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// Search finds a text in the lines of a file. It ignores the case of ASCII letters and
// returns one match per line, at most most in all.
func Search(path, content, text string, most int) []client.Match {
	var out []client.Match
	text = fold(text)
	n := 0
	for line := range strings.Lines(content) {
		n++
		if len(out) >= most {
			return out
		}
		line = strings.TrimRight(line, "\r\n")
		if i := strings.Index(fold(line), text); i >= 0 {
			out = append(out, client.Match{Path: path, Line: n, Column: utf8.RuneCountInString(line[:i]) + 1, Preview: around(line, i)})
		}
	}
	return out
}

// Named reports whether a path matches a search.
func Named(path, text string) bool { return strings.Contains(fold(path), fold(text)) }

// preview is the maximum size of a preview, and lead that of its part before the match, in
// bytes.
const (
	preview = 240
	lead    = 60
)

// around returns the part of a line around an offset, cut between characters.
func around(line string, at int) string {
	if len(line) <= preview {
		return line
	}
	from := max(0, at-lead)
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	to := min(len(line), from+preview)
	for to < len(line) && !utf8.RuneStart(line[to]) {
		to--
	}
	return line[from:to]
}

// Use is a use of a placeholder in a file.
type Use struct {
	Key  string
	Line int
}

// Placeholders returns the placeholders in a text, by the rules of configfile.Substitute.
func Placeholders(content string) []Use {
	var out []Use
	n := 0
	for line := range strings.Lines(content) {
		n++
		configfile.Substitute(line, func(key string) (string, bool) {
			out = append(out, Use{Key: key, Line: n})
			return "", true
		})
	}
	return out
}
