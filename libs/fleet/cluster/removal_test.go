package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

func TestLargeRemovalNeedsConfirmation(t *testing.T) {
	named := func(from, to int) (names []string) {
		for i := from; i < to; i++ {
			names = append(names, fmt.Sprintf("t%02d", i))
		}
		return names
	}
	for name, c := range map[string]struct {
		published, unknown, present int
		confirmed                   bool
		gone, kept                  int
		held                        bool
	}{
		"nothing published":                            {0, 0, 0, false, 0, 0, false},
		"all are there":                                {9, 0, 9, false, 0, 0, false},
		"four of four":                                 {4, 0, 0, false, 4, 0, false},
		"five of five":                                 {5, 0, 0, false, 5, 0, true},
		"five of nine":                                 {9, 0, 4, false, 5, 0, true},
		"five of ten":                                  {10, 0, 5, false, 5, 0, false},
		"most of many, confirmed":                      {20, 0, 1, true, 19, 0, false},
		"one that was published from elsewhere":        {1, 1, 0, false, 0, 1, false},
		"all were published from elsewhere":            {9, 9, 0, false, 0, 9, false},
		"what was published from elsewhere, confirmed": {9, 9, 0, true, 9, 0, false},
		"few gone beside many from elsewhere":          {9, 6, 0, false, 3, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			published := map[string]bool{}
			for i, one := range named(0, c.published) {
				published[one] = i < c.published-c.unknown
			}
			present := named(0, c.present)
			r := cluster.DecideRemoval(published, func(n string) bool { return slices.Contains(present, n) }, c.confirmed)
			if len(r.Go) != c.gone || len(r.Kept) != c.kept || r.Held != c.held || r.Published != c.published {
				t.Errorf("%+v", r)
			}
			if told := r.Tell("templates", "abc"); (told != "") != (c.held || c.kept > 0) || told != "" && !strings.Contains(told, `{"confirm": "abc"}`) {
				t.Errorf("told %q", told)
			}
		})
	}
}

func TestRemovalTakesOnlyMissingNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		published := rapid.MapOf(rapid.StringMatching("[a-f]{1,2}"), rapid.Bool()).Draw(t, "published")
		there := rapid.MapOf(rapid.StringMatching("[a-f]{1,2}"), rapid.Just(true)).Draw(t, "there")
		confirmed := rapid.Bool().Draw(t, "confirmed")
		r := cluster.DecideRemoval(published, func(n string) bool { return there[n] }, confirmed)
		for name, known := range published {
			gone, kept := slices.Contains(r.Go, name), slices.Contains(r.Kept, name)
			switch {
			case there[name] && (gone || kept), !there[name] && gone == kept, gone && !known && !confirmed, kept && confirmed:
				t.Fatalf("%s of %+v", name, r)
			}
		}
		if w := r.Await(); r.Held != (len(w.Go) > 0) || !r.Held && !slices.Equal(w.Waiting(), slices.Concat(r.Go, r.Kept)) || (w.Tell("groups", "abc") != "") != (len(r.Go)+len(r.Kept) > 0) {
			t.Fatalf("%+v waits as %+v, told %q", r, w, w.Tell("groups", "abc"))
		}
		if confirmed && r.Held || r.Held != (!confirmed && len(r.Go) > cluster.FewRemoved && 2*len(r.Go) > len(published)) {
			t.Fatalf("%+v", r)
		}
		// Afterwards, another run removes nothing.
		for _, name := range r.Go {
			delete(published, name)
		}
		if again := cluster.DecideRemoval(published, func(n string) bool { return there[n] }, confirmed); len(again.Go) > 0 {
			t.Fatalf("again %+v", again)
		}
	})
}
