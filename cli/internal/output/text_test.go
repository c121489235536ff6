package output_test

import (
	"encoding/json"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/output"
)

func TestChangeShowsBothSidesInOneLine(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`1`, `3`, "f: 1 → 3"},
		{`""`, `"a b"`, `f: "" → a b`},
		{`null`, `["a", "b"]`, `f: none → ["a","b"]`},
		{``, `"two\nlines"`, "f: none → two lines"},
		{`"\u001b[31mred"`, `true`, "f: [31mred → true"},
	} {
		if got := output.Change("f", json.RawMessage(c.from), json.RawMessage(c.to)); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}

func TestCleanKeepsLinesAndTabsOnly(t *testing.T) {
	if got := output.Clean("a\tb\n\x1b[2Jc\x07\u009bd"); got != "a\tb\n[2Jcd" {
		t.Errorf("got %q", got)
	}
}
