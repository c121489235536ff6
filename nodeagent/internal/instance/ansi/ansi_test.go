package ansi_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/nodeagent/internal/instance/ansi"
)

func TestStripRemovesEscapeSequences(t *testing.T) {
	cases := []struct{ name, line, want string }{
		{"plain text is kept", "Done (3.2s)! ☃", "Done (3.2s)! ☃"},
		{"colours go", "\x1b[1;31mer\x1b[0mror", "error"},
		{"24-bit colours are removed", "\x1b[38;2;1;2;3mred\x1b[m", "red"},
		{"cursor movement is removed", "\x1b[2K\x1b[1G> \x1b[?25lhi", "> hi"},
		{"a title is removed", "\x1b]0;a title\adone", "done"},
		{"a link is removed", "\x1b]8;;http://x/\x1b\\text\x1b]8;;\x1b\\.", "text."},
		{"a character set is removed", "\x1b(Bdone\x1b=", "done"},
		{"an incomplete colour is removed", "done\x1b[31", "done"},
		{"an incomplete title is removed", "done\x1b]0;title", "done"},
		{"an invalid sequence ends at the invalid byte", "\x1b[3\x01done", "\x01done"},
		{"a single ESC is removed", "done\x1b", "done"},
		{"an ESC before other text is removed", "\x1b☃", "☃"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := ansi.Strip(c.line); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func FuzzStrip(f *testing.F) {
	for _, s := range []string{"", "a", "\x1b[31mred\x1b[0m", "\x1b]0;t\a", "\x1b\x1b[", "\x1bP\x1b\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got := ansi.Strip(line)
		if strings.Contains(got, "\x1b") || len(got) > len(line) {
			t.Errorf("%q became %q", line, got)
		}
		if !strings.Contains(line, "\x1b") && got != line {
			t.Errorf("%q was changed to %q", line, got)
		}
	})
}
