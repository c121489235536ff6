package fleet

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestAQuotaCountsTheGroupsThatCarryAllItsLabels(t *testing.T) {
	q := Quota{Name: "alice", Selector: map[string]string{"tenant": "alice", "tier": "gold"}}
	for _, c := range []struct {
		labels map[string]string
		want   bool
	}{
		{nil, false},
		{map[string]string{"tenant": "alice"}, false},
		{map[string]string{"tenant": "bob", "tier": "gold"}, false},
		{map[string]string{"tenant": "alice", "tier": "gold", "x": "y"}, true},
	} {
		if got := q.Covers(c.labels); got != c.want {
			t.Errorf("%v: %v", c.labels, got)
		}
	}
	if (Quota{}).Covers(map[string]string{"a": "b"}) {
		t.Error("a quota without a selector counts everything")
	}
}

func TestEachBadFieldOfAQuotaIsNamed(t *testing.T) {
	good := Quota{Name: "alice", Selector: map[string]string{"tenant": "alice"}, Limit: Budget{Instances: 3}, Reserved: Budget{Instances: 2}}
	if p := good.Validate(); len(p) > 0 {
		t.Fatal(p)
	}
	for field, spoil := range map[string]func(*Quota){
		"name":               func(q *Quota) { q.Name = "a/b" },
		"selector":           func(q *Quota) { q.Selector = nil },
		"limit.memoryMb":     func(q *Quota) { q.Limit.MemoryMiB, q.Reserved = -1, Budget{} },
		"limit.cpu":          func(q *Quota) { q.Limit.CPU = maxCPU + 1 },
		"reserved.instances": func(q *Quota) { q.Limit, q.Reserved.Instances = Budget{}, -1 },
		"reserved":           func(q *Quota) { q.Reserved.Instances = 4 },
		"limit":              func(q *Quota) { q.Limit, q.Reserved = Budget{}, Budget{} },
	} {
		q := good
		spoil(&q)
		if p := q.Validate(); len(p) != 1 || errs.FieldOf(p[0]) != field {
			t.Errorf("%s: %v", field, p)
		}
	}
	for _, labels := range []map[string]string{{"": "a"}, {"a b": "c"}, {"a=b": "c"}, {"a": "b c"}, {"a": "ü"}, {"!a": "b"}, {strings.Repeat("k", 257): "v"}, {"k": strings.Repeat("v", 257)}} {
		q := good
		q.Selector = labels
		if p := q.Validate(); len(p) != 1 || !strings.HasPrefix(errs.FieldOf(p[0]), "selector") {
			t.Errorf("%v: %v", labels, p)
		}
	}
}

func TestWhatIsTakenFromABudgetCanBeGivenBack(t *testing.T) {
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

func TestAQuotaThatCannotBeIsNotSaidToBeExceededToo(t *testing.T) {
	s := DefaultSpec()
	s.Quota.MemoryMiB = -1
	if got := s.Validate(); len(got) != 1 || errs.FieldOf(got[0]) != "quota.memoryMb" {
		t.Errorf("%v, want the quota alone to be named", got)
	}
}
