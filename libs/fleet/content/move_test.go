package content_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestPreviousVersion(t *testing.T) {
	for name, c := range map[string]struct{ moves, want string }{
		"nothing":                        {"", ""},
		"the first":                      {"A", ""},
		"the one before":                 {"A B", "A"},
		"back to old content":            {"A B A", "B"},
		"after a rollback":               {"A B C <B", "A"},
		"after two rollbacks":            {"A B C <B <A", ""},
		"a rollback to what came twice":  {"A B A <B", "A"},
		"a rollback forward":             {"A B <A <B", "A"},
		"a publish after a rollback":     {"A B C <A D", "A"},
		"to a version before the oldest": {"A B <X", "B"},
		"before it was deleted":          {"A - B", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var moves []content.TemplateMove
			for n, word := range strings.Fields(c.moves) {
				m := content.TemplateMove{Number: int64(n + 1), Kind: content.MoveEdit, Digest: strings.Trim(word, "<-")}
				if strings.HasPrefix(word, "<") {
					m.Kind = content.MoveRollback
				}
				moves = append(moves, m)
			}
			if got := content.PreviousVersion(moves); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	forgotten := []content.TemplateMove{{Number: 1001, Digest: "B", Previous: "A"}}
	if got := content.PreviousVersion(forgotten); got != "A" {
		t.Errorf("what came before the oldest move: %q", got)
	}
}
