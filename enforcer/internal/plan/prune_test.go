package plan

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

func TestRecordedCrashesAreBoundedAndSharedBetweenGroups(t *testing.T) {
	limits := Limits{CrashRecords: 20, CrashFor: 30 * 24 * time.Hour}
	rapid.Check(t, func(t *rapid.T) {
		recorded := map[string]*reports.Crash{}
		for n := range rapid.IntRange(0, 100).Draw(t, "crashes") {
			g := fleet.GroupName(rapid.SampledFrom([]string{"a", "a", "a", "a", "b", "c"}).Draw(t, "group"))
			if rapid.IntRange(0, 3).Draw(t, "alone") == 0 {
				g = fleet.GroupName(fmt.Sprintf("g%d", n))
			}
			id := fmt.Sprintf("%03d", n)
			recorded[id] = &reports.Crash{ID: id, Group: g, At: at(-time.Duration(rapid.IntRange(0, 40*24).Draw(t, "age")) * time.Hour)}
		}
		remove, wake := Crashes(maps.All(recorded), limits, at(0))
		kept := maps.Clone(recorded)
		for _, c := range remove {
			delete(kept, c.ID)
		}
		if len(kept) > limits.CrashRecords {
			t.Fatalf("%d are kept", len(kept))
		}
		counts := map[fleet.GroupName]int{}
		for _, c := range kept {
			if counts[c.Group]++; !c.At.Add(limits.CrashFor).After(at(0)) {
				t.Fatalf("%+v is kept", c)
			}
		}
		if len(kept) > 0 == wake.IsZero() || !wake.IsZero() && !wake.After(at(0)) {
			t.Fatalf("wake %v for %d", wake, len(kept))
		}
		for _, c := range remove {
			if !c.At.Add(limits.CrashFor).After(at(0)) {
				continue
			}
			for _, k := range kept {
				if k.Group == c.Group && k.At.Before(c.At) {
					t.Fatalf("%s goes and the older %s stays", c.ID, k.ID)
				}
			}
			for g, n := range counts {
				if n > max(counts[c.Group], 1) {
					t.Fatalf("%s has %d and loses one while %s has %d", c.Group, counts[c.Group], g, n)
				}
			}
		}
		if again, _ := Crashes(maps.All(kept), limits, at(0)); len(again) > 0 {
			t.Fatalf("a second look removes %d more", len(again))
		}
	})
}
