package txn

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	type object = map[string]any
	cases := []struct {
		name                    string
		from, to, before, after object
	}{
		{"equal objects", object{"a": 1.0}, object{"a": 1.0}, object{}, object{}},
		{"a changed field", object{"a": 1.0, "b": 2.0}, object{"a": 3.0, "b": 2.0}, object{"a": 1.0}, object{"a": 3.0}},
		{"a new field", object{}, object{"a": 1.0}, object{}, object{"a": 1.0}},
		{"a removed field", object{"a": 1.0}, object{}, object{"a": 1.0}, object{}},
		{
			"a field of a nested object",
			object{"a": object{"b": 1.0, "c": 2.0}},
			object{"a": object{"b": 1.0, "c": 3.0}},
			object{"a": object{"c": 2.0}},
			object{"a": object{"c": 3.0}},
		},
		{"lists are compared as a whole", object{"a": []any{1.0, 2.0}}, object{"a": []any{1.0}}, object{"a": []any{1.0, 2.0}}, object{"a": []any{1.0}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before, after := Diff(c.from, c.to)
			if d := cmp.Diff(c.before, before); d != "" {
				t.Errorf("before (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.after, after); d != "" {
				t.Errorf("after (-want +got):\n%s", d)
			}
		})
	}
}

func TestAuditableTruncatesLargeObjects(t *testing.T) {
	if b := auditable(nil); b != nil {
		t.Errorf("nil is audited as %s", b)
	}
	if b := auditable(map[string]string{"a": "b"}); string(b) != `{"a":"b"}` {
		t.Errorf("a small object is audited as %s", b)
	}
	if b := auditable(strings.Repeat("x", maxAudited)); string(b) != `{"truncated":true}` {
		t.Errorf("a large object is audited as %d bytes", len(b))
	}
}
