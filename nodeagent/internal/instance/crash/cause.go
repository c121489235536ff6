package crash

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ansi"
)

// prefix matches what loggers write before a message: times, threads and levels in brackets.
var prefix = regexp.MustCompile(`^(\s*(\[[^\]]{1,60}\]|\d{2,4}[-/]\d{2}[-/]\d{2,4}|\d{2}:\d{2}:\d{2}([.,]\d+)?|TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|SEVERE)[: ,TZ]*)+`)

// Patterns of the lines that name a cause, the most specific first.
var (
	rootCause = regexp.MustCompile(`^Caused by: `)
	exception = regexp.MustCompile(`^(Exception in thread "[^"]*" )?([A-Za-z_$][\w$]*\.)*[A-Z][\w$]*(Exception|Error|Throwable)\b`)
	fatal     = regexp.MustCompile(`^(panic: |fatal error: |thread '[^']*' panicked at|terminate called|Segmentation fault|.*: (command )?not found$|Error: )`)
	complaint = regexp.MustCompile(`(?i)\b(fatal|error|failed|failure|cannot|unable|exception)\b`)

	javaFrame   = regexp.MustCompile(`^\s*at [\w$.<>/]+\(`)
	pythonFrame = regexp.MustCompile(`^\s*File "[^"]*", line \d+`)
	goFrame     = regexp.MustCompile(`^[\w./*()-]+\(.*\)$`)
)

// findCause returns the index of the line that best explains the end, or -1. Lines from late
// on were printed right before the end: they come first, then the last stack trace, then all
// earlier lines. In a chain of causes it selects the root cause.
func findCause(lines []string, late int) int {
	last := func(from int, matches func(n int) bool) int {
		for n := len(lines) - 1; n >= from; n-- {
			if matches(n) {
				return n
			}
		}
		return -1
	}
	specific := func(n int) bool {
		m := message(lines[n])
		return rootCause.MatchString(m) || exception.MatchString(m) || fatal.MatchString(m)
	}
	complains := func(n int) bool { return complaint.MatchString(message(lines[n])) }
	traced := func(n int) bool { return specific(n) && firstFrame(lines, n) != "" }
	for _, try := range []struct {
		from    int
		matches func(n int) bool
	}{{late, specific}, {late, complains}, {0, traced}, {0, specific}, {0, complains}} {
		if n := last(try.from, try.matches); n >= 0 {
			return n
		}
	}
	return -1
}

// firstFrame is the stack frame nearest to a cause: after it, or before it in Python. It is
// empty if none is near.
func firstFrame(lines []string, at int) string {
	const near = 12
	for n := at + 1; n < len(lines) && n <= at+near; n++ {
		if javaFrame.MatchString(lines[n]) || goFrame.MatchString(lines[n]) {
			return strings.TrimSpace(lines[n])
		}
	}
	for n := at - 1; n >= 0 && n >= at-near; n-- {
		if pythonFrame.MatchString(lines[n]) {
			return strings.TrimSpace(lines[n])
		}
	}
	return ""
}

// printable removes colours and other control characters from a line.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' || r == utf8.RuneError {
			return -1
		}
		return r
	}, ansi.Strip(line))
}

// message removes the prefix of a logger from a line.
func message(line string) string { return strings.TrimSpace(prefix.ReplaceAllString(line, "")) }

// Clip shortens a cause to fleet.MaxCause bytes without splitting a character.
func clip(s string) string {
	if len(s) <= reports.MaxCause {
		return s
	}
	end := reports.MaxCause
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
