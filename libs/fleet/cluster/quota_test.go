package cluster

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestQuotaCoversGroupsWithAllLabels(t *testing.T) {
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

func TestQuotaValidationNamesField(t *testing.T) {
	good := Quota{Name: "alice", Selector: map[string]string{"tenant": "alice"}, Limit: fleet.Budget{Instances: 3}, Reserved: fleet.Budget{Instances: 2}}
	if p := good.Validate(); len(p) > 0 {
		t.Fatal(p)
	}
	for field, spoil := range map[string]func(*Quota){
		"name":               func(q *Quota) { q.Name = "a/b" },
		"selector":           func(q *Quota) { q.Selector = nil },
		"limit.memoryMb":     func(q *Quota) { q.Limit.MemoryMiB, q.Reserved = -1, fleet.Budget{} },
		"limit.cpu":          func(q *Quota) { q.Limit.CPU = fleet.MaxCPU + 1 },
		"reserved.instances": func(q *Quota) { q.Limit, q.Reserved.Instances = fleet.Budget{}, -1 },
		"reserved":           func(q *Quota) { q.Reserved.Instances = 4 },
		"limit":              func(q *Quota) { q.Limit, q.Reserved = fleet.Budget{}, fleet.Budget{} },
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
