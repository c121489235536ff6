package txn

import (
	"fmt"
	"testing"
	"time"
)

func TestRecentRemembersKeysForASpan(t *testing.T) {
	r, now := NewRecent(), time.Unix(1_000_000, 0)
	steps := []struct {
		name  string
		key   string
		after time.Duration
		first bool
	}{
		{"a new key", "a", 0, true},
		{"the same key within the span", "a", 59 * time.Second, false},
		{"another key", "b", 59 * time.Second, true},
		{"the same key after the span", "a", time.Minute, true},
	}
	for _, s := range steps {
		if first := r.First(s.key, now.Add(s.after), time.Minute); first != s.first {
			t.Errorf("%s: First = %t, want %t", s.name, first, s.first)
		}
	}
	r.Forget("a")
	if !r.First("a", now.Add(time.Minute), time.Minute) {
		t.Error("a forgotten key is still remembered")
	}
}

func TestRecentIsBounded(t *testing.T) {
	r, now := NewRecent(), time.Unix(1_000_000, 0)
	for n := range 2*maxRecent + 10 {
		r.First(fmt.Sprint(n), now, time.Minute)
		if len(r.until) > maxRecent {
			t.Fatalf("%d keys are remembered, want at most %d", len(r.until), maxRecent)
		}
	}
}
