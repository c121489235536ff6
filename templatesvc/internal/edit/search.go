package edit

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Match is a place where a search found its text.
type Match struct {
	Path string `json:"path"`
	// Line and Column count from 1, the column in characters; both are 0 when the
	// file's name matches.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Preview is the line, or of a long one the part around the match.
	Preview string `json:"preview"`
}

// Text reports whether a file's content is text: UTF-8 without NUL.
func Text(content []byte) bool {
	return bytes.IndexByte(content, 0) < 0 && utf8.Valid(content)
}

// fold is text with ASCII letters in lower case: offsets stay what they are.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// Search finds a text in a file's lines, letters of ASCII in any case; one match a line,
// at most most of them.
func Search(path, content, text string, most int) []Match {
	var out []Match
	text = fold(text)
	n := 0
	for line := range strings.Lines(content) {
		n++
		if len(out) >= most {
			return out
		}
		line = strings.TrimRight(line, "\r\n")
		if i := strings.Index(fold(line), text); i >= 0 {
			out = append(out, Match{Path: path, Line: n, Column: utf8.RuneCountInString(line[:i]) + 1, Preview: around(line, i)})
		}
	}
	return out
}

// Named reports whether a path matches a search.
func Named(path, text string) bool { return strings.Contains(fold(path), fold(text)) }

// preview is the longest part of a line shown, in bytes; lead what of it stands before the match.
const (
	preview = 240
	lead    = 60
)

// around is a line, cut to the part around an offset at the bounds of characters.
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

// Use is a placeholder in a file.
type Use struct {
	Key  string
	Line int
}

// Placeholders are the uses of placeholders in a text, by the rules of fleet.Substitute.
func Placeholders(content string) []Use {
	var out []Use
	n := 0
	for line := range strings.Lines(content) {
		n++
		fleet.Substitute(line, func(key string) (string, bool) {
			out = append(out, Use{Key: key, Line: n})
			return "", true
		})
	}
	return out
}
