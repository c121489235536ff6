package console

import (
	"bytes"
	"regexp"
	"regexp/syntax"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ansi"
)

const (
	// MaxPattern bounds the number of instructions of a compiled pattern. A short expression
	// can compile to a hundred thousand, and matching takes proportionally longer.
	MaxPattern = 1000
	// fastPattern is the number of instructions up to which matching is about as fast as reading.
	fastPattern = 64
)

// Pattern matches lines without their escape sequences. The zero value matches every line.
type Pattern struct {
	expr  *regexp.Regexp
	steps int
}

// Compile compiles a regular expression (RE2). An empty one matches every line. Invalid,
// without a field, for an invalid expression and for one with more than MaxPattern instructions.
func Compile(text string) (Pattern, error) {
	if text == "" {
		return Pattern{}, nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return Pattern{}, errs.New(errs.Invalid, "is not a regular expression: %v", err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return Pattern{}, errs.New(errs.Invalid, "is not a regular expression: %v", err)
	}
	if n := len(program.Inst); n > MaxPattern {
		return Pattern{}, errs.New(errs.Invalid, "is too large: it compiles to %d steps, the limit is %d; use fewer repetitions", n, MaxPattern)
	}
	expr, err := regexp.Compile(text)
	if err != nil {
		return Pattern{}, errs.New(errs.Invalid, "is not a regular expression: %v", err)
	}
	return Pattern{expr, len(program.Inst)}, nil
}

// budget is how many bytes of a log one call may search for the pattern.
func (p Pattern) budget() int64 { return MaxSearch * fastPattern / int64(max(fastPattern, p.steps)) }

// match reports whether a line, with its newline, matches.
func (p Pattern) match(line []byte) bool {
	if p.expr == nil {
		return true
	}
	line = trimEOL(line)
	if bytes.IndexByte(line, 0x1b) < 0 {
		return p.expr.Match(line)
	}
	return p.expr.MatchString(ansi.Strip(string(line)))
}
