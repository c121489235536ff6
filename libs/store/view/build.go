package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/players"
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
	after := before.fork()
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
		followed, err := after.apply(&change, c)
		if err != nil { // a damaged record must not stop the others
			b.view.log.Error("cannot decode a record, skipping it", "key", c.Key, "revision", c.ModRev, "error", err)
			continue
		}
		if !followed {
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

// fork returns a copy that shares all records. Trees are copied on write.
func (s *Snapshot) fork() *Snapshot {
	return &Snapshot{
		Rev: s.Rev, step: s.step, changed: s.changed, Groups: fork(s.Groups), Instances: fork(s.Instances), Orphans: fork(s.Orphans), Nodes: fork(s.Nodes),
		NodesDesired: fork(s.NodesDesired), NodeSessions: fork(s.NodeSessions), Allocs: fork(s.Allocs),
		Reports: fork(s.Reports), Plans: fork(s.Plans), TemplateHeads: fork(s.TemplateHeads),
		CrashLoops: fork(s.CrashLoops), Crashes: fork(s.Crashes), Names: fork(s.Names), Sessions: fork(s.Sessions),
		Quotas: fork(s.Quotas), Catalog: fork(s.Catalog), QuotaAllocs: fork(s.QuotaAllocs), Evictions: fork(s.Evictions),
		Users: fork(s.Users), APITokens: fork(s.APITokens), tokensByHash: fork(s.tokensByHash),
		ownByHash:      fork(s.ownByHash),
		Roles:          fork(s.Roles),
		Revocations:    fork(s.Revocations),
		Lockouts:       fork(s.Lockouts),
		KnownNetworks:  fork(s.KnownNetworks),
		Logins:         fork(s.Logins),
		Credentials:    fork(s.Credentials),
		SealedKeys:     fork(s.SealedKeys),
		Networks:       fork(s.Networks),
		MentionMarks:   fork(s.MentionMarks),
		Audit:          fork(s.Audit),
		AuditTotals:    s.AuditTotals,
		auditOf:        fork(s.auditOf),
		byGroup:        fork(s.byGroup),
		byNode:         fork(s.byNode),
		PlayerParts:    fork(s.PlayerParts),
		reportParts:    fork(s.reportParts),
		byPlayer:       fork(s.byPlayer),
		byTeller:       fork(s.byTeller),
		Transfers:      fork(s.Transfers),
		Messages:       fork(s.Messages),
		ConfigVersions: fork(s.ConfigVersions),
		ConfigActive:   fork(s.ConfigActive),
		JoinTokens:     fork(s.JoinTokens),
		RevokedNodes:   fork(s.RevokedNodes),
		definers:       s.definers,
	}
}

func fork[K cmp.Ordered, V any](t Table[K, V]) Table[K, V] { return Table[K, V]{t.tree.Copy()} }

// apply applies one change to a snapshot under construction. followed is false for kinds that a
// view does not contain.
func (s *Snapshot) apply(c *Change, raw store.Change) (followed bool, err error) {
	if !wellFormed(c.Kind, c.Key) {
		return false, nil
	}
	switch c.Kind {
	case KindGroup:
		return true, set(s.Groups, fleet.GroupName(c.Key[0]), c, raw)
	case KindIntent, KindPlacement, KindOrder, KindPending, KindStatus:
		return true, s.applyInstance(c, raw)
	case KindNode:
		return true, set(s.Nodes, fleet.NodeID(c.Key[0]), c, raw)
	case KindNodeDesired:
		return true, set(s.NodesDesired, fleet.NodeID(c.Key[0]), c, raw)
	case KindAlloc:
		return true, set(s.Allocs, fleet.NodeID(c.Key[0]), c, raw)
	case KindReport:
		return true, s.applyReport(c, raw)
	case KindReportPart:
		return true, s.applyReportPart(c, raw)
	case KindPlan:
		return true, set(s.Plans, c.Key[0], c, raw)
	case KindTemplateHead:
		s.definers = new(definers)
		return true, set(s.TemplateHeads, c.Key[0]+"/"+c.Key[1], c, raw)
	case KindCrashLoop:
		return true, set(s.CrashLoops, fleet.GroupName(c.Key[0]), c, raw)
	case KindCrash:
		return true, set(s.Crashes, c.Key[0], c, raw)
	case KindName:
		return true, set(s.Names, c.Key[0]+"/"+c.Key[1], c, raw)
	case KindCatalog:
		return true, set(s.Catalog, c.Key[0], c, raw)
	case KindQuota:
		return true, set(s.Quotas, c.Key[0], c, raw)
	case KindQuotaAlloc:
		return true, set(s.QuotaAllocs, c.Key[0], c, raw)
	case KindEviction:
		return true, set(s.Evictions, fleet.InstanceID(c.Key[0]), c, raw)
	case KindUser:
		return true, set(s.Users, c.Key[0], c, raw)
	case KindAPIToken:
		return true, s.applyToken(c, raw)
	case KindAudit:
		return true, s.applyAudit(c, raw)
	case KindRole:
		return true, set(s.Roles, c.Key[0], c, raw)
	case KindRevocation:
		return true, set(s.Revocations, c.Key[0], c, raw)
	case KindLockout:
		return true, set(s.Lockouts, c.Key[0], c, raw)
	case KindLogin:
		return true, set(s.Logins, c.Key[0], c, raw)
	case KindKnownNetworks:
		return true, set(s.KnownNetworks, c.Key[0], c, raw)
	case KindCredential:
		return true, set(s.Credentials, fleet.InstanceID(c.Key[0]), c, raw)
	case KindSealedKey:
		return true, set(s.SealedKeys, c.Key[0], c, raw)
	case KindNetwork:
		return true, set(s.Networks, c.Key[0], c, raw)
	case KindMentionMark:
		return true, set(s.MentionMarks, c.Key[0], c, raw)
	case KindPlayers:
		return true, s.applyPlayers(c, raw)
	case KindMessage:
		return true, set(s.Messages, c.Key[0], c, raw)
	case KindTransfer:
		return true, set(s.Transfers, players.PlayerID(c.Key[0]), c, raw)
	case KindConfig:
		return true, set(s.ConfigVersions, c.Key[0], c, raw)
	case KindRevokedNode:
		return true, set(s.RevokedNodes, fleet.NodeID(c.Key[0]), c, raw)
	case KindJoinToken:
		return true, set(s.JoinTokens, fleet.NodeID(c.Key[0]), c, raw)
	case KindConfigActive:
		return true, set(s.ConfigActive, c.Key[0], c, raw)
	case KindSession:
		if c.Key[0] == "node" {
			return true, set(s.NodeSessions, fleet.NodeID(c.Key[1]), c, raw)
		}
		return true, set(s.Sessions, c.Key[0]+"/"+c.Key[1], c, raw)
	}
	return false, nil
}

// wellFormed reports whether a key has the number of segments of its kind.
func wellFormed(k Kind, key []string) bool {
	switch k {
	case KindPlacement, KindOrder, KindName, KindTemplateHead, KindSession, KindPlayers, KindReportPart:
		return len(key) == 2
	default:
		return len(key) == 1
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

func nameKey(g fleet.GroupName, ordinal int) string {
	key := keys.Name(g, ordinal).String()
	return strings.TrimPrefix(key, keys.Root+string(KindName)+"/")
}
