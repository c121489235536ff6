package machine

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestNotesAreClipped(t *testing.T) {
	long := strings.Repeat("é", 16<<10)
	var many []string
	for range 40 {
		many = append(many, long)
	}
	got := Note(append([]string{"first", ""}, many...)...)
	if len(got) > 8<<10 || !strings.HasPrefix(got, "first; é") || !strings.HasSuffix(got, "; and 25 more") || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %.40q … %q", len(got), got, got[max(0, len(got)-40):])
	}
	if got := Note("a", "", "b"); got != "a; b" {
		t.Errorf("short ones are %q", got)
	}
	s := State{Notes: long}
	st := step{State: s}
	st.show(fleet.Failed, fleet.ReasonStartFailed, long)
	if m := st.Status.Message; len(m) > fleet.MaxStatusMessage || !utf8.ValidString(m) || !strings.HasSuffix(m, "…") {
		t.Errorf("a status has a message of %d bytes", len(m))
	}
}
