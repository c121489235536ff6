package fleet

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestBudgetAddAndSubAreInverse(t *testing.T) {
	draw := func(t *rapid.T, name string) Budget {
		n := rapid.IntRange(0, 100)
		return Budget{n.Draw(t, name+" memory"), n.Draw(t, name+" cpu"), n.Draw(t, name+" instances")}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, bound := draw(t, "a"), draw(t, "b"), draw(t, "bound")
		if a.Add(b).Sub(b) != a {
			t.Fatal("a + b - b is not a")
		}
		if a.Add(b).Within(bound) && !a.Within(bound) {
			t.Fatal("less is more")
		}
		if !a.Within(Budget{}) {
			t.Fatal("an empty bound bounds")
		}
	})
}

func TestInvalidQuotaIsNotReportedAsExceeded(t *testing.T) {
	s := DefaultSpec()
	s.Quota.MemoryMiB = -1
	if got := s.Validate(); len(got) != 1 || errs.FieldOf(got[0]) != "quota.memoryMb" {
		t.Errorf("%v, want the quota alone to be named", got)
	}
}
