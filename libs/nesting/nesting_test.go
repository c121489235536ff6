package nesting_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/nesting"
)

func TestLevelsOfObjectsAndListsCountTogether(t *testing.T) {
	for text, want := range map[string]bool{
		`1`:                   false,
		`[[{}]]`:              false,
		`{"a":[{"b":[]}]}`:    true,
		`[[[[]]]]`:            true,
		`[[],[[]],[],[[]]]`:   false,
		`["[[[[","\"[[[[",1]`: false,
		`{"{{{{":"\\"}`:       false,
	} {
		if got := nesting.Exceeds([]byte(text), 3); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	if !nesting.Exceeds([]byte(deep), 9_999) || nesting.Exceeds([]byte(deep), 10_000) {
		t.Error("10,000 levels are not counted")
	}
}
