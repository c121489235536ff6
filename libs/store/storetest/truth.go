package storetest

import (
	"fmt"
	"maps"
	"testing"

	"github.com/orreryhq/orrery/libs/store"
)

// Truth is etcd's own history of a prefix, to compare with what a client saw. It is read in parts,
// each before it is compacted.
type Truth struct {
	prefix  string
	from    int64
	to      int64
	start   map[string]string
	changes []store.Change
}

// NewTruth returns the truth from the current revision on.
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

// Extend reads the changes up to the current revision.
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

// Reset implements store.Handler.
func (h *Truth) Reset(kvs []store.KeyValue, rev int64) {
	if rev != h.from {
		return
	}
	for _, kv := range kvs {
		h.start[kv.Key] = text(kv)
	}
}

// Apply implements store.Handler.
func (h *Truth) Apply(changes []store.Change, _ int64) { h.changes = append(h.changes, changes...) }

// Now returns the revision up to which the truth is known.
func (h *Truth) Now() int64 { return h.to }

// Between returns the changes after one revision up to another, oldest first, as text.
func (h *Truth) Between(after, upTo int64) []string {
	var out []string
	for _, c := range h.changes {
		if c.ModRev > after && c.ModRev <= upTo {
			out = append(out, Describe(c))
		}
	}
	return out
}

// At returns the state at a revision: each key's mod-revision and value.
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

// State returns a list in the format of At.
func State(kvs []store.KeyValue) map[string]string {
	state := map[string]string{}
	for _, kv := range kvs {
		state[kv.Key] = text(kv)
	}
	return state
}

// Describe returns a change in the format of Between.
func Describe(c store.Change) string {
	if c.Removed {
		return fmt.Sprintf("%s@%d removed", c.Key, c.ModRev)
	}
	return c.Key + "@" + text(c.KeyValue)
}

func text(kv store.KeyValue) string { return fmt.Sprintf("%d %s", kv.ModRev, kv.Value) }
