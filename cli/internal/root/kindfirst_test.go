package root_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/root"
)

func TestAKindBeforeTheVerbIsExplained(t *testing.T) {
	for args, want := range map[string]string{
		"crash list":           "orrery get crashes",
		"crash ls":             "orrery get crashes",
		"user list":            "orrery get users",
		"role get":             "orrery get roles",
		"group":                "orrery get groups",
		"group lobby":          "orrery get group lobby",
		"groups":               "orrery get groups",
		"group list":           "orrery get groups",
		"node":                 "orrery get nodes",
		"group delete lobby":   "orrery delete group lobby",
		"group show lobby":     "orrery describe group lobby",
		"instance get lobby-1": "orrery get instance lobby-1",
		"node drain node-1":    "orrery drain node node-1",
		"template pusch":       "did you mean orrery template push?",
		"crash unknown":        "see orrery crash --help",
		"instnces":             "",
	} {
		var out, notes bytes.Buffer
		a := &app.App{In: strings.NewReader(""), Out: &out, Err: &notes, Env: func(string) string { return "" }}
		code := root.Run(t.Context(), a, strings.Fields(args))
		if code != exit.Usage || !strings.Contains(notes.String(), want+"\n") && want != "" {
			t.Errorf("%s: code %d, %q; want %q", args, code, notes.String(), want)
		}
	}
}
