package storetest

import (
	"fmt"
	"maps"
	"testing"

	"github.com/orreryhq/orrery/libs/store"
)

// Truth is what etcd's own history says of a prefix, to compare with what somebody
// saw. It is read in parts, each before it is compacted away.
type Truth struct {
	prefix  string
	from    int64
	to      int64
	start   map[string]string
	changes []store.Change
}

// NewTruth is the truth from the current revision on.
func NewTruth(t testing.TB, c *store.Client, prefix string) *Truth {
	t.Helper()
	rev, err := c.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := &Truth{prefix: prefix, from: rev, to: rev, start: map[string]string{}}
	h.Extend(t, c)
	return h
}

// Extend reads what has happened since, up to the current revision.
func (h *Truth) Extend(t testing.TB, c *store.Client) {
	t.Helper()
	now, err := c.Revision(t.Context())
	if err == nil {
		err = c.History(t.Context(), h.prefix, h.to, now, h)
	}
	if err != nil {
		t.Fatalf("reading history from %d to %d: %v", h.to, now, err)
	}
	h.to = now
}

// Reset is store.Handler's.
func (h *Truth) Reset(kvs []store.KeyValue, rev int64) {
	if rev != h.from {
		return
	}
	for _, kv := range kvs {
		h.start[kv.Key] = text(kv)
	}
}

// Apply is store.Handler's.
func (h *Truth) Apply(changes []store.Change, _ int64) { h.changes = append(h.changes, changes...) }

// Now is the revision up to which the truth is known.
func (h *Truth) Now() int64 { return h.to }

// Between are the changes after one revision up to another, oldest first, in words.
func (h *Truth) Between(after, upTo int64) []string {
	var out []string
	for _, c := range h.changes {
		if c.ModRev > after && c.ModRev <= upTo {
			out = append(out, Describe(c))
		}
	}
	return out
}

// At is the state at a revision: each key's modification revision and value.
func (h *Truth) At(rev int64) map[string]string {
	state := maps.Clone(h.start)
	for _, c := range h.changes {
		switch {
		case c.ModRev > rev:
		case c.Removed:
			delete(state, c.Key)
		default:
			state[c.Key] = text(c.KeyValue)
		}
	}
	return state
}

// State is a list in the words of At.
func State(kvs []store.KeyValue) map[string]string {
	state := map[string]string{}
	for _, kv := range kvs {
		state[kv.Key] = text(kv)
	}
	return state
}

// Describe is a change in the words of Between.
func Describe(c store.Change) string {
	if c.Removed {
		return fmt.Sprintf("%s@%d removed", c.Key, c.ModRev)
	}
	return c.Key + "@" + text(c.KeyValue)
}

func text(kv store.KeyValue) string { return fmt.Sprintf("%d %s", kv.ModRev, kv.Value) }
