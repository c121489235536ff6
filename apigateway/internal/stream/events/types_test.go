package events

import (
	"os"
	"strings"
	"testing"
)

func TestEveryTypeIsInTheDocumentAndIsTaken(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range append(append([]Type{}, emitted...), reserved...) {
		if !strings.Contains(string(b), "`"+string(typ)+"`") {
			t.Errorf("docs/reference/events.md does not name %s", typ)
		}
		if !Ours(typ) || !Ours(Type(strings.ToLower(string(typ)))) {
			t.Errorf("an instance may call its own event %s", typ)
		}
	}
	if Ours("MY_PLUGIN:ROUND_OVER") {
		t.Error("an instance may not give its event a name of its own")
	}
}
