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
	// pages are the parts of the list that is being read.
	pages [][]listed
	// start is the first batch while its list is being read, and late what it applies last.
	start *Batch
	late  []*listed
	// rewound is true until the list of a different history arrives.
	rewound bool
}

// listed is a change of a followed key. A record of a list is decoded at once if its revision is new, so that
// its value need not be kept until the list is complete.
type listed struct {
	store.Change
	kind  Kind
	rest  []string // the segments of the key after the kind
	table *kindTable
	// record is the decoded record, nil if it was not decoded or is damaged.
	record  any
	decoded bool
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
	b.pages, b.start, b.late = nil, nil, nil
	if b.view.Snapshot().Rev == 0 { // nothing is known yet, so that each page can be applied at once
		b.keys = map[string]int64{}
		b.start = b.begin(keys, true)
	}
}

// Page takes a part of a list.
func (b *builder) Page(kvs []store.KeyValue) {
	page := make([]listed, 0, len(kvs))
	for _, kv := range kvs {
		l, ok := b.followed(store.Change{KeyValue: kv})
		if !ok {
			continue
		}
		if b.keys[kv.Key] != kv.ModRev {
			b.decode(&l)
		}
		switch {
		case b.start == nil:
			page = append(page, l)
		case l.order() == last:
			b.late = append(b.late, &l)
		default:
			b.apply(b.start, &l)
		}
	}
	if b.start == nil {
		b.pages = append(b.pages, page)
	}
}

// Reset compares a full list with the known state and applies the difference.
func (b *builder) Reset(kvs []store.KeyValue, rev int64) {
	if len(kvs) > 0 {
		b.Begin(len(kvs))
		b.Page(kvs)
	}
	n := 0
	if b.start != nil {
		slices.SortFunc(b.late, inOrder)
		for _, l := range b.late {
			b.apply(b.start, l)
		}
		n = len(b.start.Changes)
		b.publish(b.start, rev)
		b.start, b.late = nil, nil
	} else {
		changes := b.difference(rev)
		n = len(changes)
		b.step(changes, rev, true)
	}
	if n >= largeList {
		debug.FreeOSMemory()
	}
}

// difference returns what a list changed and removed.
func (b *builder) difference(rev int64) (changes []*listed) {
	present := make(map[string]struct{}, len(b.keys))
	for _, page := range b.pages {
		for n := range page {
			l := &page[n]
			known, ok := b.keys[l.Key]
			if ok {
				present[l.Key] = struct{}{}
			}
			if known != l.ModRev {
				changes = append(changes, l)
			}
		}
	}
	b.pages = nil
	for key := range b.keys {
		if _, ok := present[key]; !ok {
			l, _ := b.followed(store.Change{KeyValue: store.KeyValue{Key: key, ModRev: rev}, Removed: true})
			changes = append(changes, &l)
		}
	}
	slices.SortFunc(changes, inOrder)
	return changes
}

func inOrder(x, y *listed) int {
	return cmp.Or(cmp.Compare(x.order(), y.order()), cmp.Compare(x.ModRev, y.ModRev), strings.Compare(x.Key, y.Key))
}

// largeList is the size of a list in records after which its memory is returned at once: it took more than the
// records themselves, and would be returned only when twice as much as they need was allocated.
const largeList = 50_000

// last is the highest order.
const last = 2

// order puts the records of an instance that decide what it holds before its others; see Batch.Relisted. It
// puts reports after their parts: in the other order, each of the parts would make another report.
func (l *listed) order() int {
	switch l.kind {
	case KindIntent:
		return 0
	case KindOrder, KindPending, KindReport:
		return last
	default:
		return 1
	}
}

// Apply applies live changes.
func (b *builder) Apply(changes []store.Change, rev int64) {
	all := make([]*listed, 0, len(changes))
	for _, c := range changes {
		if l, ok := b.followed(c); ok {
			all = append(all, &l)
		}
	}
	b.step(all, rev, false)
}

// followed returns a change with the table of its kind. ok is false if the view does not follow its key.
func (b *builder) followed(c store.Change) (l listed, ok bool) {
	kind, rest, ok := keys.Split(c.Key)
	if !ok {
		return listed{}, false
	}
	table, ok := b.view.tables[Kind(kind)]
	return listed{Change: c, kind: Kind(kind), rest: rest, table: table}, ok && len(rest) == table.segments
}

// decode decodes a record and drops its value. A damaged record must not stop the others, so it is logged.
func (b *builder) decode(l *listed) {
	record, err := l.table.decode(l.rest, l.KeyValue)
	if err != nil {
		b.view.log.Error("cannot decode a record, skipping it", "key", l.Key, "revision", l.ModRev, "error", err)
		record = nil
	}
	l.record, l.decoded, l.Value = record, true, nil
}

func (b *builder) step(changes []*listed, rev int64, relisted bool) {
	batch := b.begin(len(changes), relisted)
	for _, l := range changes {
		if !l.Removed && !l.decoded {
			b.decode(l)
		}
		b.apply(batch, l)
	}
	b.publish(batch, rev)
}

// begin returns a batch of at most n changes, with the next snapshot under construction.
func (b *builder) begin(n int, relisted bool) *Batch {
	before := b.view.Snapshot()
	batch := &Batch{Before: before, After: b.view.fork(before), Relisted: relisted, Changes: make([]Change, 0, n)}
	if relisted {
		batch.After.unlisted = before
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
	after.unlisted, batch.Rewound, b.rewound = nil, b.rewound, false
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
