package terminal

import (
	"io"
	"strings"
	"testing"
)

func TestHomeAndEndWorkInEveryTerminal(t *testing.T) {
	for typed, want := range map[string]string{
		"a\x1b[1~b": "a\x1b[Hb", "\x1b[7~": "\x1b[H", "\x1bOH": "\x1b[H", "\x1b[H": "\x1b[H",
		"\x1b[4~\x1b[4~": "\x1b[F\x1b[F", "\x1b[8~": "\x1b[F", "\x1bOF": "\x1b[F", "\x1b[3~": "\x1b[3~",
	} {
		if got, err := io.ReadAll(keyReader{strings.NewReader(typed)}); string(got) != want || err != nil {
			t.Errorf("%q is read as %q, want %q: %v", typed, got, want, err)
		}
	}
}
