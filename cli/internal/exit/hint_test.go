package exit

import (
	"errors"
	"testing"
)

func TestHintKeepsTheCode(t *testing.T) {
	err := Hint(With(Usage, errors.New("no terminal"), ""), "pass --yes")
	if CodeOf(err) != Usage || HintOf(err) != "pass --yes" {
		t.Errorf("code %d, hint %q", CodeOf(err), HintOf(err))
	}
}
