package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// builder turns the output of a follower into snapshots. It is not safe for concurrent use. keys
// stores the revision of each followed key, to find what a relist changed and removed.
type builder struct {
	view *View
	keys map[string]int64
	// rewound is true until the list of a different history arrives.
	rewound bool
}

var (
	_ store.Rewinder = (*builder)(nil)
	_ store.Asker    = (*builder)(nil)
)

// Asks implements store.Asker. It delivers a value when a waiter needs a revision that may not
// concern the view.
func (b *builder) Asks() <-chan struct{} { return b.view.asks }

// Rewound makes the next list count as a change of every key, because equal revisions of a
// different history mean nothing.
func (b *builder) Rewound() {
	b.rewound = true
	for key := range b.keys {
		b.keys[key] = 0
	}
}

// Reset compares a full list with the known state and applies the difference.
func (b *builder) Reset(kvs []store.KeyValue, rev int64) {
	changes := make([]store.Change, 0, len(kvs))
	listed := make(map[string]struct{}, len(kvs))
	for _, kv := range kvs {
		listed[kv.Key] = struct{}{}
		if b.keys[kv.Key] != kv.ModRev {
			changes = append(changes, store.Change{KeyValue: kv})
		}
	}
	for key := range b.keys {
		if _, ok := listed[key]; !ok {
			changes = append(changes, store.Change{KeyValue: store.KeyValue{Key: key, ModRev: rev}, Removed: true})
		}
	}
	slices.SortStableFunc(changes, func(x, y store.Change) int {
		return cmp.Or(cmp.Compare(x.ModRev, y.ModRev), strings.Compare(x.Key, y.Key))
	})
	b.step(changes, rev, true)
}

// Apply applies live changes.
func (b *builder) Apply(changes []store.Change, rev int64) { b.step(changes, rev, false) }

func (b *builder) step(changes []store.Change, rev int64, relisted bool) {
	before := b.view.Snapshot()
	after := b.view.fork(before)
	after.Rev = max(rev, before.Rev)
	if b.rewound {
		after.Rev = rev
	}
	batch := Batch{Before: before, After: after, Relisted: relisted, Rewound: b.rewound, Changes: make([]Change, 0, len(changes))}
	b.rewound = false
	for _, c := range changes {
		kind, rest, ok := keys.Split(c.Key)
		if !ok {
			continue
		}
		change := Change{Kind: Kind(kind), Rev: c.ModRev, Key: rest}
		table, followed := b.view.tables[change.Kind]
		if !followed || len(change.Key) != table.segments {
			continue
		}
		if err := table.apply(after, &change, c); err != nil { // a damaged record must not stop the others
			b.view.log.Error("cannot decode a record, skipping it", "key", c.Key, "revision", c.ModRev, "error", err)
			continue
		}
		if c.Removed {
			delete(b.keys, c.Key)
		} else {
			b.keys[c.Key] = c.ModRev
		}
		batch.Changes = append(batch.Changes, change)
	}
	after.count(batch.Changes)
	b.view.publish(batch)
}

// count records which kinds have changed in a snapshot under construction.
func (s *Snapshot) count(changes []Change) {
	s.step++
	copied := false
	for _, c := range changes {
		if s.changed[c.Kind] == s.step {
			continue
		}
		if !copied {
			s.changed, copied = maps.Clone(s.changed), true
		}
		if s.changed == nil {
			s.changed = map[Kind]int64{}
		}
		s.changed[c.Kind] = s.step
	}
}

// set puts or removes one record of a plain table.
func set[K cmp.Ordered, V any](t Table[K, *V], k K, c *Change, raw store.Change) error {
	if raw.Removed {
		if old, ok := t.tree.Delete(k); ok {
			c.Before = old
		}
		return nil
	}
	v, err := store.DecodeNew[V](raw.KeyValue)
	if err != nil {
		return err
	}
	if old, ok := t.tree.Set(k, v); ok {
		c.Before = old
	}
	c.After = v
	return nil
}

func (s *Snapshot) applyToken(c *Change, raw store.Change) error {
	if err := set(s.APITokens, c.Key[0], c, raw); err != nil {
		return err
	}
	if old, ok := c.Before.(*account.APIToken); ok {
		s.tokensByHash.tree.Delete(old.Hash)
	}
	if t, ok := c.After.(*account.APIToken); ok {
		s.tokensByHash.tree.Set(t.Hash, t)
	}
	return nil
}

func nameKey(name string) string {
	return strings.TrimPrefix(keys.NameOf(name).String(), keys.Root+string(KindName)+"/")
}
