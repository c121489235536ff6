package terminal_test

import (
	"testing"
	"unicode"

	"github.com/orreryhq/orrery/cli/internal/output/terminal"
)

func TestAppendClean(t *testing.T) {
	for name, test := range map[string]struct{ in, plain, coloured string }{
		"text stays":                    {"a\tb ü €", "a\tb ü €", "a\tb ü €"},
		"colours are kept on request":   {"\x1b[1;31mred\x1b[0m!", "red!", "\x1b[1;31mred\x1b[0m!\x1b[0m"},
		"a colour ends with its line":   {"\x1b[38:5:9mred", "red", "\x1b[38:5:9mred\x1b[0m"},
		"the cursor does not move":      {"a\x1b[2Jb\x1b[10;1Hc", "abc", "abc"},
		"the title does not change":     {"a\x1b]0;title\x07b", "ab", "ab"},
		"another end of a title":        {"a\x1b]0;title\x1b\\b", "ab", "ab"},
		"no questions to the terminal":  {"\x1b[>c\x1b[>4;1m", "", ""},
		"control characters go":         {"a\rb\x00c\x7fd\be", "abcde", "abcde"},
		"so do those beyond ASCII":      {"a\u009b31mb", "a31mb", "a31mb"},
		"and those that are one byte":   {"a\x9b31mb", "a31mb", "a31mb"},
		"a sequence without end":        {"a\x1b[31", "a", "a"},
		"an escape alone":               {"a\x1b", "a", "a"},
		"bytes that are not UTF-8 stay": {"a\xffb", "a\xffb", "a\xffb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := terminal.Clean(test.in); got != test.plain {
				t.Errorf("got %q, want %q", got, test.plain)
			}
			if got := string(terminal.AppendClean([]byte("x"), test.in, true)); got != "x"+test.coloured {
				t.Errorf("with colours: got %q, want %q", got, test.coloured)
			}
		})
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31mb\x1b]0;t\x07\xc2\x9b")
	f.Fuzz(func(t *testing.T, line string) {
		clean := terminal.Clean(line)
		for _, r := range clean {
			if unicode.IsControl(r) && r != '\t' {
				t.Fatalf("%q has %q", clean, r)
			}
		}
	})
}

func BenchmarkAppendClean(b *testing.B) {
	line := "\x1b[32m[12:34:56]\x1b[0m \x1b[1mServer thread\x1b[0m: a line of a usual length"
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		out = terminal.AppendClean(out[:0], line, true)
	}
}
