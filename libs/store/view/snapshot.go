package view

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// Table is a read-only sorted map of one kind.
type Table[K cmp.Ordered, V any] struct{ tree *btree.Map[K, V] }

func newTable[K cmp.Ordered, V any]() Table[K, V] { return Table[K, V]{new(btree.Map[K, V])} }

// Get is the record under a key.
func (t Table[K, V]) Get(k K) (V, bool) { return t.tree.Get(k) }

// Len is the number of records.
func (t Table[K, V]) Len() int { return t.tree.Len() }

// All are the records in key order.
func (t Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.tree.Scan(yield) }
}

// from are the records from a key on, in key order.
func (t Table[K, V]) from(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.tree.Ascend(k, yield) }
}

// First is the first record in key order; ok is false when there is none.
func (t Table[K, V]) First() (k K, v V, ok bool) { return t.tree.Min() }

// Back are the records in the opposite of key order.
func (t Table[K, V]) Back() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.tree.Reverse(yield) }
}

// backFrom are the records from a key on, in the opposite of key order.
func (t Table[K, V]) backFrom(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.tree.Descend(k, yield) }
}

// Pair is a compound key of an index: first, then second.
type pair string

func pairOf[A, B ~string](a A, b B) pair { return pair(string(a) + "\x00" + string(b)) }

// index says which instances belong to a group, or a node. It does not hold them: so
// most changes of an instance change one tree, and not three.
type index = Table[pair, struct{}]

// Snapshot is the fleet at one revision. All records are shared: never change one.
type Snapshot struct {
	// Rev is the revision the snapshot is at. 0 before the first list.
	Rev int64

	// step counts the snapshots of a view; changed is the one in which a kind last did.
	step    int64
	changed map[Kind]int64

	Groups    Table[fleet.GroupName, *fleet.Group]
	Instances Table[fleet.InstanceID, *fleet.Instance]
	// Orphans are records of instances without an intent.
	Orphans      Table[fleet.InstanceID, *fleet.Instance]
	Nodes        Table[fleet.NodeID, *fleet.Node]
	NodesDesired Table[fleet.NodeID, *fleet.NodeDesired]
	NodeSessions Table[fleet.NodeID, *fleet.NodeSession]
	Allocs       Table[fleet.NodeID, *fleet.Alloc]
	// Reports hold the figures of all instances of their node, also those that are in ReportParts.
	Reports       Table[fleet.NodeID, *fleet.Report]
	Plans         Table[string, *fleet.StoredPlan]         // by digest
	TemplateHeads Table[string, *fleet.TemplateHead]       // by "<group>/<name>"
	CrashLoops    Table[fleet.GroupName, *fleet.CrashLoop] //
	Crashes       Table[string, *fleet.Crash]              // by id
	Names         Table[string, *store.NameClaim]          // by "<group>/<ordinal>"
	Sessions      Table[string, *fleet.Session]            // by "<service>/<replica>"
	Quotas        Table[string, *fleet.Quota]              // by name
	Catalog       Table[string, *fleet.CatalogPlatform]    // by platform
	QuotaAllocs   Table[string, *fleet.QuotaAlloc]         // by quota
	Evictions     Table[fleet.InstanceID, *fleet.Eviction] //
	Users         Table[string, *fleet.User]               // by name
	APITokens     Table[string, *fleet.APIToken]           // by id
	Roles         Table[string, *fleet.Role]               // by name
	Revocations   Table[string, *fleet.Revocation]         // by the id of a login's token
	Lockouts      Table[string, *fleet.Lockout]            // by the hash of a user name
	Logins        Table[string, *fleet.Login]              // by id
	KnownNetworks Table[string, *fleet.KnownNetworks]      // by the id of a user or an API token
	Credentials   Table[fleet.InstanceID, *fleet.InstanceCredential]
	SealedKeys    Table[string, *fleet.SealedKey] // by id
	Networks      Table[string, *fleet.Network]   // by name
	MentionMarks  Table[string, *fleet.MentionMark]
	PlayerParts   Table[string, *fleet.PresencePart]     // by "<node>/<part>"
	reportParts   Table[string, *fleet.ReportPart]       // by "<node>/<part>"
	Transfers     Table[fleet.PlayerID, *fleet.Transfer] //
	Messages      Table[string, *fleet.PlayerMessage]    // by id
	tokensByHash  Table[string, *fleet.APIToken]
	ownByHash     Table[string, fleet.InstanceID] // by the hash of the root token of its own
	byPlayer      Table[pair, *fleet.Presence]    // by player and who tells of it
	byTeller      index                           // the other way
	byGroup       index
	byNode        index
	Audit         Table[string, *fleet.AuditSlip] // by id, which is in order of time
	// AuditTotals are what there is of each class of the audit.
	AuditTotals    [fleet.AuditClasses]fleet.AuditTotal
	auditOf        Table[pair, *fleet.AuditSlip]       // by kind and name of an object, and id
	ConfigVersions Table[string, *fleet.ConfigVersion] // in the order of versions
	ConfigActive   Table[string, *fleet.ConfigActive]  // one, or none
	JoinTokens     Table[fleet.NodeID, *fleet.JoinToken]
	RevokedNodes   Table[fleet.NodeID, *fleet.RevokedNode]
	// definers are those of TemplateHeads, which all snapshots with the same ones share.
	definers *definers
}

// definers are made when they are first asked for.
type definers struct {
	once sync.Once
	made fleet.Definers
}

func emptySnapshot() *Snapshot {
	return &Snapshot{
		Groups: newTable[fleet.GroupName, *fleet.Group](), Instances: newTable[fleet.InstanceID, *fleet.Instance](),
		Orphans: newTable[fleet.InstanceID, *fleet.Instance](),
		Nodes:   newTable[fleet.NodeID, *fleet.Node](), NodesDesired: newTable[fleet.NodeID, *fleet.NodeDesired](),
		NodeSessions: newTable[fleet.NodeID, *fleet.NodeSession](), Allocs: newTable[fleet.NodeID, *fleet.Alloc](),
		Reports: newTable[fleet.NodeID, *fleet.Report](), Plans: newTable[string, *fleet.StoredPlan](),
		TemplateHeads: newTable[string, *fleet.TemplateHead](), CrashLoops: newTable[fleet.GroupName, *fleet.CrashLoop](),
		Crashes: newTable[string, *fleet.Crash](),
		Names:   newTable[string, *store.NameClaim](), Sessions: newTable[string, *fleet.Session](),
		Quotas: newTable[string, *fleet.Quota](), Catalog: newTable[string, *fleet.CatalogPlatform](), QuotaAllocs: newTable[string, *fleet.QuotaAlloc](),
		Evictions: newTable[fleet.InstanceID, *fleet.Eviction](),
		Users:     newTable[string, *fleet.User](), APITokens: newTable[string, *fleet.APIToken](),
		Roles: newTable[string, *fleet.Role](), Revocations: newTable[string, *fleet.Revocation](),
		Lockouts:       newTable[string, *fleet.Lockout](),
		KnownNetworks:  newTable[string, *fleet.KnownNetworks](),
		Logins:         newTable[string, *fleet.Login](),
		Credentials:    newTable[fleet.InstanceID, *fleet.InstanceCredential](),
		Transfers:      newTable[fleet.PlayerID, *fleet.Transfer](),
		Messages:       newTable[string, *fleet.PlayerMessage](),
		tokensByHash:   newTable[string, *fleet.APIToken](),
		ownByHash:      newTable[string, fleet.InstanceID](),
		SealedKeys:     newTable[string, *fleet.SealedKey](),
		byGroup:        newTable[pair, struct{}](),
		byNode:         newTable[pair, struct{}](),
		Networks:       newTable[string, *fleet.Network](),
		MentionMarks:   newTable[string, *fleet.MentionMark](),
		Audit:          newTable[string, *fleet.AuditSlip](),
		auditOf:        newTable[pair, *fleet.AuditSlip](),
		PlayerParts:    newTable[string, *fleet.PresencePart](),
		reportParts:    newTable[string, *fleet.ReportPart](),
		byPlayer:       newTable[pair, *fleet.Presence](),
		byTeller:       newTable[pair, struct{}](),
		ConfigVersions: newTable[string, *fleet.ConfigVersion](),
		ConfigActive:   newTable[string, *fleet.ConfigActive](),
		JoinTokens:     newTable[fleet.NodeID, *fleet.JoinToken](),
		RevokedNodes:   newTable[fleet.NodeID, *fleet.RevokedNode](),
		definers:       new(definers),
	}
}

// Version tells what a view holds of some kinds apart: while it is the same, so are their
// records. It says nothing to another view.
func (s *Snapshot) Version(kinds ...Kind) (latest int64) {
	for _, k := range kinds {
		latest = max(latest, s.changed[k])
	}
	return latest
}

// GroupInstances are a group's instances in order of id.
func (s *Snapshot) GroupInstances(g fleet.GroupName) iter.Seq[*fleet.Instance] {
	return within(s.byGroup, string(g), s.Instances.Get)
}

// NodeInstances are the instances with a placement on a node, in order of id.
func (s *Snapshot) NodeInstances(n fleet.NodeID) iter.Seq[*fleet.Instance] {
	return within(s.byNode, string(n), s.joined)
}

// joined is the join of an instance's records, with an intent or without.
func (s *Snapshot) joined(id fleet.InstanceID) (*fleet.Instance, bool) {
	if i, ok := s.Instances.Get(id); ok {
		return i, true
	}
	return s.Orphans.Get(id)
}

func within(t index, first string, get func(fleet.InstanceID) (*fleet.Instance, bool)) iter.Seq[*fleet.Instance] {
	prefix := pair(first + "\x00")
	return func(yield func(*fleet.Instance) bool) {
		for k := range t.from(prefix) {
			id, ok := strings.CutPrefix(string(k), string(prefix))
			if !ok {
				return
			}
			if i, ok := get(fleet.InstanceID(id)); ok && !yield(i) {
				return
			}
		}
	}
}

// ByName is the instance that holds a name: the living one, or the latest that
// had it when nobody took it since.
func (s *Snapshot) ByName(name string) (*fleet.Instance, bool) {
	g, ordinal, ok := fleet.ParseInstanceName(name)
	if !ok {
		return nil, false
	}
	claim, ok := s.Names.Get(nameKey(g, ordinal))
	if !ok {
		return nil, false
	}
	return s.Instances.Get(claim.ID)
}

// Find is the instance with an id, or with a name.
func (s *Snapshot) Find(idOrName string) (*fleet.Instance, bool) {
	if id := fleet.InstanceID(idOrName); id.Valid() {
		if i, ok := s.Instances.Get(id); ok {
			return i, true
		}
	}
	return s.ByName(idOrName)
}

// TokenByHash is the API token with a hash.
func (s *Snapshot) TokenByHash(hash string) (*fleet.APIToken, bool) { return s.tokensByHash.Get(hash) }

// InstanceByToken is the instance whose status has the hash of a root token.
func (s *Snapshot) InstanceByToken(hash string) (*fleet.Instance, bool) {
	id, ok := s.ownByHash.Get(hash)
	if !ok {
		return nil, false
	}
	return s.Instances.Get(id)
}

// Whole is a group as its instances are made, with what it has of its parents. A value that
// templates of a parent hide is hidden here too, whatever templates the group has itself.
func (s *Snapshot) Whole(g *fleet.Group) *fleet.Group {
	if g.Spec.Parent == "" {
		return g
	}
	whole := fleet.Inherit(*g, s.concealing(fleet.Ancestors(g, s.Groups.Get)))
	return &whole
}

// concealing are ancestors that say of each value who is shown it now, by the templates that
// each of them is made of itself.
func (s *Snapshot) concealing(ancestors []*fleet.Group) []*fleet.Group {
	if !slices.ContainsFunc(ancestors, func(a *fleet.Group) bool { return len(a.Spec.Variables) > 0 }) {
		return ancestors
	}
	definers, out := s.Definers(), slices.Clone(ancestors)
	for n, a := range ancestors {
		shown := *a
		shown.Hidden = a.Conceal(definers.Of(a.Name, fleet.Inherit(*a, ancestors[n+1:]).Spec))
		out[n] = &shown
	}
	return out
}

// Definers are the templates that define variables.
func (s *Snapshot) Definers() fleet.Definers {
	s.definers.once.Do(func() { s.definers.made = fleet.NewDefiners(s.Heads()) })
	return s.definers.made
}

// Materials are what plans are composed of.
func (s *Snapshot) Materials() fleet.Materials {
	m := fleet.Materials{Heads: s.Heads(), Catalog: map[string]*fleet.CatalogPlatform{}}
	for name, p := range s.Catalog.All() {
		m.Catalog[name] = p
	}
	return m
}

// Heads are all template heads in order of name, as fleet.Compose wants them.
func (s *Snapshot) Heads() []fleet.TemplateHead {
	out := make([]fleet.TemplateHead, 0, s.TemplateHeads.Len())
	for _, h := range s.TemplateHeads.All() {
		out = append(out, *h)
	}
	return out
}

// ServiceSessions are the live replicas of a service.
func (s *Snapshot) ServiceSessions(service string) []*fleet.Session {
	var out []*fleet.Session
	for k, v := range s.Sessions.from(service + "/") {
		if len(k) <= len(service) || k[:len(service)+1] != service+"/" {
			break
		}
		out = append(out, v)
	}
	return out
}

// Name is the claim on a group's ordinal.
func (s *Snapshot) Name(g fleet.GroupName, ordinal int) (*store.NameClaim, bool) {
	return s.Names.Get(nameKey(g, ordinal))
}

// Config is which version of the cluster's settings holds; the zero value before the first.
func (s *Snapshot) Config() fleet.ConfigActive {
	for _, active := range s.ConfigActive.All() {
		return *active
	}
	return fleet.ConfigActive{}
}
