package output_test

import (
	"encoding/json"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/output"
)

func TestCommandsReplaceRequests(t *testing.T) {
	for text, want := range map[string]string{
		"GET /api/v1/services/lobby-1/explain says what would help":                         "orrery explain instance lobby-1 says what would help",
		"to end the pause, change the group or send POST /api/v1/groups/a/crash-loop/reset": "to end the pause, change the group or run orrery crash reset a",
		"GET /api/v1/crashes?group=a shows their last lines":                                "orrery get crashes --group a shows their last lines",
		"start another one with POST /api/v1/groups/a/deploy":                               "start another one with orrery rollout start a",
		"start the agent of node-1":                                                         "start the agent of node-1",
	} {
		if got := output.Commands(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

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

func TestWithoutRequests(t *testing.T) {
	for text, want := range map[string]string{
		"group a: GET /api/v1/groups/a: 404 Not Found":                     "group a: the server answered 404 Not Found",
		"GET /api/v1/system/version: the answer was cut or is not JSON: x": "the answer was cut or is not JSON: x",
		"there is no group a": "there is no group a",
	} {
		if got := output.WithoutRequests(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
