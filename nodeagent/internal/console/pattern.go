package console

import (
	"bytes"
	"regexp"
	"regexp/syntax"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/ansi"
)

const (
	// MaxPattern is how many steps a pattern may have once it is compiled: a few letters
	// can stand for a hundred thousand of them, and matching takes that much longer.
	MaxPattern = 1000
	// quick is up to how many steps a pattern costs about what reading does.
	quick = 64
)

// Pattern is what a line must match, escape sequences aside. The zero value matches every line.
type Pattern struct {
	expr  *regexp.Regexp
	steps int
}

// Compile makes a pattern of a regular expression (RE2); an empty one matches every
// line. Invalid, without a field, for what is none and for one of more than MaxPattern steps.
func Compile(text string) (Pattern, error) {
	if text == "" {
		return Pattern{}, nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return Pattern{}, errs.New(errs.Invalid, "is no regular expression: %v", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return Pattern{}, errs.New(errs.Invalid, "is no regular expression: %v", err)
	}
	if n := len(program.Inst); n > MaxPattern {
		return Pattern{}, errs.New(errs.Invalid, "is too large: written out it has %d steps, and may have %d; repeat less in it", n, MaxPattern)
	}
	expr, err := regexp.Compile(text)
	if err != nil {
		return Pattern{}, errs.New(errs.Invalid, "is no regular expression: %v", err)
	}
	return Pattern{expr, len(program.Inst)}, nil
}

// budget is how much of a log may be looked through for the pattern in one call.
func (p Pattern) budget() int64 { return MaxSearch * quick / int64(max(quick, p.steps)) }

// match reports whether a line, with its newline, matches.
func (p Pattern) match(line []byte) bool {
	if p.expr == nil {
		return true
	}
	line = trimmed(line)
	if bytes.IndexByte(line, 0x1b) < 0 {
		return p.expr.Match(line)
	}
	return p.expr.MatchString(ansi.Strip(string(line)))
}
