package label

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestSelectorMatchesAllExpressions(t *testing.T) {
	cases := []struct {
		text, written         string
		none, bedwars, tested bool // whether it matches no labels, game=bedwars, and game=bedwars with test
	}{
		{"", "", true, true, true},
		{"  ", "", true, true, true},
		{"game=bedwars", "game=bedwars", false, true, true},
		{" game = bedwars ,!test", "game=bedwars, !test", false, true, false},
		{"game,test", "game, test", false, false, true},
		{"game in (bedwars, skywars), test notin (yes)", "game in (bedwars, skywars), test notin (yes)", false, true, false},
		{"game=,test", "game=, test", false, false, false},
	}
	for _, c := range cases {
		s, err := ParseSelector(c.text)
		if err != nil || s.String() != c.written || s.Empty() != (c.written == "") {
			t.Errorf("%q: %v, %v", c.text, s, err)
			continue
		}
		for want, labels := range map[*bool]map[string]string{
			&c.none: nil, &c.bedwars: {"game": "bedwars"}, &c.tested: {"game": "bedwars", "test": "yes"},
		} {
			if got := s.Matches(labels); got != *want {
				t.Errorf("%q with %v: %v", c.text, labels, got)
			}
		}
		var again struct{ S Selector }
		if b, err := json.Marshal(map[string]Selector{"S": s}); err != nil || json.Unmarshal(b, &again) != nil || again.S.String() != c.written {
			t.Errorf("%q is stored as %s, %v, which reads %v", c.text, b, err, again.S)
		}
	}
}

func TestParseSelectorErrorsGivePosition(t *testing.T) {
	for text, says := range map[string]string{
		",":             "a label key is missing at character 1",
		"game,":         "a label key is missing at character 6",
		"game=a, =b":    "a label key is missing at character 9",
		"game=a test":   `"," is missing at character 8`,
		"a,b in (c":     `"," or ")" is missing at character 10`,
		"game=a; !test": `"," is missing at character 7`,
	} {
		if _, err := ParseSelector(text); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
