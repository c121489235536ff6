package crash

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/ansi"
)

// prefix is what loggers put before a message: times, threads and levels in brackets.
var prefix = regexp.MustCompile(`^(\s*(\[[^\]]{1,60}\]|\d{2,4}[-/]\d{2}[-/]\d{2,4}|\d{2}:\d{2}:\d{2}([.,]\d+)?|TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|SEVERE)[: ,TZ]*)+`)

// The lines that say why, the plainest first.
var (
	rootCause = regexp.MustCompile(`^Caused by: `)
	exception = regexp.MustCompile(`^(Exception in thread "[^"]*" )?([A-Za-z_$][\w$]*\.)*[A-Z][\w$]*(Exception|Error|Throwable)\b`)
	fatal     = regexp.MustCompile(`^(panic: |fatal error: |thread '[^']*' panicked at|terminate called|Segmentation fault|.*: (command )?not found$|Error: )`)
	complaint = regexp.MustCompile(`(?i)\b(fatal|error|failed|failure|cannot|unable|exception)\b`)

	javaFrame   = regexp.MustCompile(`^\s*at [\w$.<>/]+\(`)
	pythonFrame = regexp.MustCompile(`^\s*File "[^"]*", line \d+`)
	goFrame     = regexp.MustCompile(`^[\w./*()-]+\(.*\)$`)
)

// findCause is the line that says best why; -1 when none says anything of the kind. The lines
// from late on were printed right before the end. What they say comes first, then the
// last stack trace, then everything before. Of a chain of causes it is the root's.
func findCause(lines []string, late int) int {
	last := func(from int, matches func(n int) bool) int {
		for n := len(lines) - 1; n >= from; n-- {
			if matches(n) {
				return n
			}
		}
		return -1
	}
	plainest := func(n int) bool {
		m := message(lines[n])
		return rootCause.MatchString(m) || exception.MatchString(m) || fatal.MatchString(m)
	}
	complains := func(n int) bool { return complaint.MatchString(message(lines[n])) }
	traced := func(n int) bool { return plainest(n) && firstFrame(lines, n) != "" }
	for _, try := range []struct {
		from    int
		matches func(n int) bool
	}{{late, plainest}, {late, complains}, {0, traced}, {0, plainest}, {0, complains}} {
		if n := last(try.from, try.matches); n >= 0 {
			return n
		}
	}
	return -1
}

// firstFrame is the first place in the code that is named for a cause: after it, or in
// Python before it. Empty when there is none near.
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

// plain is a line without colours and other control characters.
func plain(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' || r == utf8.RuneError {
			return -1
		}
		return r
	}, ansi.Strip(line))
}

// message is a line without what its logger put before it.
func message(line string) string { return strings.TrimSpace(prefix.ReplaceAllString(line, "")) }

// clip shortens a cause, between two characters.
func clip(s string) string {
	if len(s) <= fleet.MaxCause {
		return s
	}
	end := fleet.MaxCause
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
