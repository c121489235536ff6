package casefold_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/casefold"
)

func TestNamesThatSomeSystemHoldsForOneAreRefusedWithBoth(t *testing.T) {
	for name, c := range map[string]struct {
		paths []string
		want  string // "" if the names are allowed
	}{
		"other names":                         {[]string{"é", "e", "d/é"}, ""},
		"one directory of several files":      {[]string{"é/a", "é/b"}, ""},
		"letters put together":                {[]string{"caf\u00e9", "cafe\u0301"}, `"caf\u00e9" and "cafe\u0301" differ only in how their letters are put together`},
		"the same of directories":             {[]string{"caf\u00e9/a", "cafe\u0301/b"}, `"caf\u00e9" and "cafe\u0301" differ`},
		"a directory of a file's name":        {[]string{"\u1100\u1161", "\uac00/b"}, `"\u1100\u1161" and "\uac00" differ`},
		"both case and letters":               {[]string{"E\u0301", "\u00e9"}, "differ only in case"},
		"the sign of a unit that is a letter": {[]string{"\u212b", "\u00c5"}, "put together"},
		"in a directory":                      {[]string{"d/\u00e9", "d/e\u0301"}, `"d/\u00e9" and "d/e\u0301"`},
		"in two directories":                  {[]string{"c/\u00e9", "d/e\u0301"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var m content.Manifest
			for _, p := range c.paths {
				m.Entries = append(m.Entries, content.ManifestEntry{Path: p})
			}
			err := casefold.Check(m)
			if c.want == "" && err != nil || c.want != "" && (!errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), c.want)) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}
