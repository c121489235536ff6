package command

import (
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// reader reads a line word by word.
type reader struct {
	line string
	at   int
}

// skip skips blanks.
func (r *reader) skip() {
	for r.at < len(r.line) && (r.line[r.at] == ' ' || r.line[r.at] == '\t') {
		r.at++
	}
}

// word returns the next word; ok is false at the end of the line. Words with blanks need single or
// double quotes. Except in single quotes, a backslash escapes the next character. It returns Malformed
// if a quote is not closed.
func (r *reader) word() (word string, ok bool, err error) {
	r.skip()
	var out strings.Builder
	quote, began := byte(0), 0
	start := r.at
	for ; r.at < len(r.line); r.at++ {
		c := r.line[r.at]
		switch {
		case quote == 0 && (c == ' ' || c == '\t'):
			return out.String(), true, nil
		case quote == 0 && (c == '"' || c == '\''):
			quote, began = c, r.at
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && r.at+1 < len(r.line):
			r.at++
			out.WriteByte(r.line[r.at])
		default:
			out.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", false, errs.New(errs.Malformed, "the quote at character %d does not end: close it, or write \\%c for the character itself", began+1, quote)
	}
	return out.String(), r.at > start, nil
}

// rest returns the rest of the line without leading blanks.
func (r *reader) rest() string {
	r.skip()
	out := r.line[r.at:]
	r.at = len(r.line)
	return out
}

// unquoted removes quotes that enclose the whole text.
func unquoted(text string) string {
	r := reader{line: text}
	word, ok, err := r.word()
	if err != nil || !ok || r.at != len(text) || text[0] != '"' && text[0] != '\'' {
		return text
	}
	return word
}
