package view

import (
	"cmp"
	"maps"
	"runtime/debug"
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
	// While a list is being read: size is its number of keys. first is the batch of the first list, to
	// which changes are added at once, except the deferred ones. Of a later list, changed are the records
	// with another revision, and present are all known keys that it has.
	size     int
	first    *Batch
	deferred []*listed
	changed  []*listed
	present  map[string]struct{}
	// rewound is true until the list of a different history arrives.
	rewound bool
	// frees makes the builder return the memory that a large list took.
	frees bool
}

// listed is a change of a followed key. A record of a list is decoded at once, so that its value need not be
// kept until the list is complete.
type listed struct {
	store.Change
	kind  Kind
	rest  []string // the segments of the key after the kind
	table *kindTable
	// record is the decoded record, nil if it was removed or is damaged.
	record any
}

var (
	_ store.Pager    = (*builder)(nil)
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

// Begin implements store.Pager.
func (b *builder) Begin(keys int) {
	b.size, b.first, b.deferred, b.changed, b.present = keys, nil, nil, nil, map[string]struct{}{}
	if b.view.Snapshot().Rev == 0 { // nothing is known yet, so that each page can be applied at once
		b.keys = map[string]int64{}
		b.first = b.begin(keys, true)
	}
}

// Page takes a part of a list.
func (b *builder) Page(kvs []store.KeyValue) {
	for _, kv := range kvs {
		l, ok := b.followed(store.Change{KeyValue: kv})
		if !ok {
			continue
		}
		rev, known := b.keys[kv.Key]
		if known {
			b.present[kv.Key] = struct{}{}
		}
		if rev == kv.ModRev {
			continue
		}
		b.decode(l)
		switch {
		case b.first == nil:
			b.changed = append(b.changed, l)
		case l.order() == orderLast:
			b.deferred = append(b.deferred, l)
		default:
			b.apply(b.first, l)
		}
	}
}

// Reset compares a full list with the known state and applies the difference.
func (b *builder) Reset(kvs []store.KeyValue, rev int64) {
	if len(kvs) > 0 {
		b.Begin(len(kvs))
		b.Page(kvs)
	}
	batch, changes := b.first, b.deferred
	if batch == nil {
		changes = b.difference(rev)
		batch = b.begin(len(changes), true)
	}
	b.first, b.deferred, b.changed, b.present = nil, nil, nil, nil
	slices.SortFunc(changes, inOrder)
	for _, l := range changes {
		b.apply(batch, l)
	}
	b.publish(batch, rev)
	if b.frees && b.size >= largeList {
		debug.FreeOSMemory()
	}
}

// difference returns what a list changed and removed.
func (b *builder) difference(rev int64) []*listed {
	changes := b.changed
	for key := range b.keys {
		if _, ok := b.present[key]; !ok {
			l, _ := b.followed(store.Change{KeyValue: store.KeyValue{Key: key, ModRev: rev}, Removed: true})
			changes = append(changes, l)
		}
	}
	return changes
}

func inOrder(x, y *listed) int {
	return cmp.Or(cmp.Compare(x.order(), y.order()), cmp.Compare(x.ModRev, y.ModRev), strings.Compare(x.Key, y.Key))
}

// largeList is the size of a list in keys after which the builder returns the memory that reading it took.
// The garbage collector alone would do that only once as much again was allocated.
const largeList = 50_000

// orderLast is the highest order.
const orderLast = 2

// order puts the records of an instance that decide what it holds before its others; see Batch.Relisted. It
// puts reports after their parts: in the other order, each of the parts would make another report. Players come
// last, because the later of two records of a player counts, which may be on different nodes.
func (l *listed) order() int {
	switch l.kind {
	case KindIntent:
		return 0
	case KindOrder, KindPending, KindReport, KindPlayers:
		return orderLast
	default:
		return 1
	}
}

// Apply applies live changes.
func (b *builder) Apply(changes []store.Change, rev int64) {
	batch := b.begin(len(changes), false)
	for _, c := range changes {
		if l, ok := b.followed(c); ok {
			b.decode(l)
			b.apply(batch, l)
		}
	}
	b.publish(batch, rev)
}

// followed returns a change with the table of its kind. ok is false if the view does not follow its key.
func (b *builder) followed(c store.Change) (_ *listed, ok bool) {
	kind, rest, ok := keys.Split(c.Key)
	if !ok {
		return nil, false
	}
	table, ok := b.view.tables[Kind(kind)]
	if !ok || len(rest) != table.segments {
		return nil, false
	}
	return &listed{Change: c, kind: Kind(kind), rest: rest, table: table}, true
}

// decode decodes a record and drops its value. A damaged record must not stop the others, so it is logged.
func (b *builder) decode(l *listed) {
	if l.Removed {
		return
	}
	record, err := l.table.decode(l.rest, l.KeyValue)
	if err != nil {
		b.view.log.Error("cannot decode a record, skipping it", "key", l.Key, "revision", l.ModRev, "error", err)
		record = nil
	}
	l.record, l.Value = record, nil
}

// begin returns a batch of at most n changes, with the next snapshot under construction.
func (b *builder) begin(n int, relisted bool) *Batch {
	before := b.view.Snapshot()
	batch := &Batch{Before: before, After: b.view.fork(before), Relisted: relisted, Changes: make([]Change, 0, n)}
	if relisted {
		batch.After.beforeList = before
	}
	return batch
}

// apply adds a decoded change to a batch. It skips damaged records.
func (b *builder) apply(batch *Batch, l *listed) {
	if !l.Removed && l.record == nil {
		return
	}
	change := Change{Kind: l.kind, Rev: l.ModRev, Key: l.rest, After: l.record}
	l.table.apply(batch.After, &change)
	if l.Removed {
		delete(b.keys, l.Key)
	} else {
		b.keys[l.Key] = l.ModRev
	}
	batch.Changes = append(batch.Changes, change)
}

// publish completes a batch at a revision and publishes it.
func (b *builder) publish(batch *Batch, rev int64) {
	after := batch.After
	if after.Rev = max(rev, batch.Before.Rev); b.rewound {
		after.Rev = rev
	}
	after.beforeList, batch.Rewound, b.rewound = nil, b.rewound, false
	after.count(batch.Changes)
	b.view.publish(*batch)
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

// set puts one record into a plain table, or removes it.
func set[K cmp.Ordered, V any](t Table[K, *V], k K, c *Change) {
	v, present := c.After.(*V)
	if !present {
		if old, ok := t.tree.Delete(k); ok {
			c.Before = old
		}
		return
	}
	if old, ok := t.tree.Set(k, v); ok {
		c.Before = old
	}
}

func (s *Snapshot) applyToken(c *Change) {
	set(s.APITokens, c.Key[0], c)
	if old, ok := c.Before.(*account.APIToken); ok {
		s.tokensByHash.tree.Delete(old.Hash)
	}
	if t, ok := c.After.(*account.APIToken); ok {
		s.tokensByHash.tree.Set(t.Hash, t)
	}
}

func nameKey(name string) string {
	return strings.TrimPrefix(keys.NameOf(name).String(), keys.Root+string(KindName)+"/")
}
