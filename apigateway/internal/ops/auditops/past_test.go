package auditops

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// object draws a JSON object with nested objects.
func object(t *rapid.T, depth int) map[string]any {
	out := map[string]any{}
	for _, name := range []string{"a", "b", "c"} {
		switch rapid.IntRange(0, 3).Draw(t, name) {
		case 0: // absent
		case 1:
			out[name] = rapid.IntRange(0, 2).Draw(t, "number")
		case 2:
			out[name] = []any{rapid.IntRange(0, 2).Draw(t, "element")}
		case 3:
			if depth > 0 {
				out[name] = object(t, depth-1)
			}
		}
	}
	return out
}

func TestPutBackRevertsDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := object(t, 2), object(t, 2)
		before, after := txn.Diff(from, to)
		if d := cmp.Diff(from, putBack(to, before, after)); d != "" {
			t.Fatalf("from %v to %v (-want +got):\n%s", from, to, d)
		}
	})
}

func TestMomentIsBefore(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	entry := &account.AuditSlip{}
	entry.CreatedAt, entry.ModRev = at, 7
	cases := []struct {
		name   string
		moment Moment
		before bool
	}{
		{"an earlier revision", Moment{Revision: 6}, true},
		{"the same revision", Moment{Revision: 7}, false},
		{"a revision counts more than a time", Moment{Revision: 7, Time: at.Add(-time.Hour)}, false},
		{"an earlier time", Moment{Time: at.Add(-time.Second)}, true},
		{"the same time", Moment{Time: at}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.moment.isBefore(entry); got != c.before {
				t.Errorf("isBefore = %t, want %t", got, c.before)
			}
		})
	}
}
