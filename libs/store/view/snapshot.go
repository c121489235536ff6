package view

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Table is a read-only sorted map of the records of one kind. Reading a table of a kind that the view
// does not follow panics.
type Table[K cmp.Ordered, V any] struct{ tree *btree.Map[K, V] } // nil in a view that does not follow the kind

// Get returns the record under a key.
func (t Table[K, V]) Get(k K) (V, bool) { return t.tree.Get(k) }

// Len returns the number of records.
func (t Table[K, V]) Len() int { return t.tree.Len() }

// All yields the records in key order.
func (t Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.tree.Scan(yield) }
}

// from yields the records from a key on, in key order.
func (t Table[K, V]) from(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.tree.Ascend(k, yield) }
}

// under yields the records whose keys have a prefix, in key order, by the rest of their keys.
func under[K ~string, V any](t Table[K, V], prefix K) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for k, v := range t.from(prefix) {
			rest, ok := strings.CutPrefix(string(k), string(prefix))
			if !ok || !yield(rest, v) {
				return
			}
		}
	}
}

// First returns the first record in key order. ok is false if the table is empty.
func (t Table[K, V]) First() (k K, v V, ok bool) { return t.tree.Min() }

// Back yields the records in reverse key order.
func (t Table[K, V]) Back() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.tree.Reverse(yield) }
}

// backFrom yields the records from a key on, in reverse key order.
func (t Table[K, V]) backFrom(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.tree.Descend(k, yield) }
}

// Pair is a compound key of an index: first, then second.
type pair string

func pairOf[A, B ~string](a A, b B) pair { return pair(string(a) + "\x00" + string(b)) }

// index says which instances belong to a group or a node. It does not contain the instances, so
// that most changes of an instance change one tree instead of three.
type index = Table[pair, struct{}]

// Snapshot is the fleet at one revision. All records are shared: never change one.
type Snapshot struct {
	// Rev is the revision of the snapshot. 0 before the first list.
	Rev int64

	// step counts the snapshots of a view. changed is the step at which a kind last changed.
	step    int64
	changed map[Kind]int64
	// beforeList is the snapshot before a list, while that is applied.
	beforeList *Snapshot

	Groups    Table[fleet.GroupName, *fleet.Group]
	Instances Table[fleet.InstanceID, *fleet.Instance]
	// Orphans are records of instances without an intent.
	Orphans      Table[fleet.InstanceID, *fleet.Instance]
	Nodes        Table[fleet.NodeID, *fleet.Node]
	NodesDesired Table[fleet.NodeID, *fleet.NodeDesired]
	NodeSessions Table[fleet.NodeID, *fleet.NodeSession]
	Allocs       Table[fleet.NodeID, *fleet.Alloc]
	// Reports contain the figures of all instances of their node, including those from
	// ReportParts.
	Reports       Table[fleet.NodeID, *reports.Report]
	Plans         Table[string, *fleet.StoredPlan]          // by digest
	TemplateHeads Table[string, *content.TemplateHead]      // by "<group>/<name>"
	CrashLoops    Table[fleet.GroupName, *crashloop.Loop]   //
	Scalings      Table[fleet.GroupName, *scaling.Decision] // the latest of each group
	Tenants       Table[fleet.GroupName, *cluster.Tenant]   // numbers of static groups, including deleted ones
	Crashes       Table[string, *reports.Crash]             // by id
	Names         Table[string, *keys.NameClaim]            // by the key's segments; see Name
	Sessions      Table[string, *cluster.Session]           // by "<service>/<replica>"
	Quotas        Table[string, *cluster.Quota]             // by name
	Catalog       Table[string, *content.CatalogPlatform]   // by platform
	QuotaAllocs   Table[string, *cluster.QuotaAlloc]        // by quota
	Evictions     Table[fleet.InstanceID, *fleet.Eviction]  //
	Users         Table[string, *account.User]              // by name
	APITokens     Table[string, *account.APIToken]          // by id
	Roles         Table[string, *account.Role]              // by name
	Bindings      Table[string, *account.Binding]           // by name
	Revocations   Table[string, *account.Revocation]        // by the id of a login's token
	Lockouts      Table[string, *account.Lockout]           // by the hash of a user name
	Logins        Table[string, *account.Login]             // by id
	KnownNetworks Table[string, *account.KnownNetworks]     // by the id of a user or an API token
	Factors       Table[string, *account.Factor]            // by the id of a user
	Credentials   Table[fleet.InstanceID, *account.InstanceCredential]
	SealedKeys    Table[string, *account.SealedKey] // by id
	Networks      Table[string, *players.Network]   // by name
	NameMarks     Table[string, *keys.NameMark]
	MentionMarks  Table[string, *players.MentionMark]
	PlayerParts   Table[string, *players.PresencePart] // by "<node>/<part>"
	reportParts   Table[string, *reports.ReportPart]   // by "<node>/<part>"
	Claims        Table[fleet.InstanceID, *allocation.Claims]
	moves         Table[fleet.InstanceID, *move.Move]
	copies        Table[fleet.InstanceID, *move.Copy]
	Transfers     Table[players.PlayerID, *players.Transfer] //
	Messages      Table[string, *players.PlayerMessage]      // by id
	tokensByHash  Table[string, *account.APIToken]
	ownByHash     Table[string, fleet.InstanceID] // by the hash of the root token of its own
	byPlayer      Table[pair, *players.Presence]  // by player and who tells of it
	byTeller      index                           // the other way
	byGroup       index
	byNode        index
	Audit         Table[string, *account.AuditSlip] // by id, which is in order of time
	// AuditTotals are the totals of each audit class.
	AuditTotals    [account.AuditClasses]account.AuditTotal
	auditOf        Table[pair, *account.AuditSlip]       // by kind and name of an object, and id
	ConfigVersions Table[string, *cluster.ConfigVersion] // in the order of versions
	ConfigActive   Table[string, *cluster.ConfigActive]  // one, or none
	Maintenances   Table[string, *cluster.Maintenance]   // one, or none
	Schedules      Table[string, *schedule.Schedule]     // by name
	ScheduleStates Table[string, *schedule.State]        // by the name of the schedule
	Overlays       Table[string, *schedule.Overlay]      // by name
	activeOverlays Table[string, *schedule.Active]       // one, or none
	Notices        Table[string, *notice.Notice]         // by name
	NoticeStates   Table[string, *notice.State]          // by the name of the notice
	Applied        Table[string, *applied.Mark]          // by "<kind>/<name>"
	deployments    Table[string, *deployment.Deployment] // by "<group>/<padded number>"
	progress       Table[string, *deployment.Progress]   // the same
	JoinTokens     Table[fleet.NodeID, *cluster.JoinToken]
	RevokedNodes   Table[fleet.NodeID, *cluster.RevokedNode]
	// definers are derived from TemplateHeads. Snapshots with the same heads share them.
	definers *definers
	// bound is derived from Bindings. Snapshots with the same bindings share it.
	bound *bound
}

// bound is created on first use.
type bound struct {
	once sync.Once
	to   map[string][]*account.Binding // by the id of a user
}

// definers are created on first use.
type definers struct {
	once sync.Once
	made compose.Definers
}

// Version identifies the state of some kinds in a view: while it is the same, so are their
// records. Versions of different views are not comparable.
func (s *Snapshot) Version(kinds ...Kind) (latest int64) {
	for _, k := range kinds {
		latest = max(latest, s.changed[k])
	}
	return latest
}

// AddressOf returns the address at which players reach an instance: the one that it advertises, or else
// that of its node. It is empty if neither is known.
func (s *Snapshot) AddressOf(i *fleet.Instance) string {
	if i.Status != nil && i.Status.HostAddress != "" {
		return i.Status.HostAddress
	}
	if n, ok := s.Nodes.Get(i.Node()); ok {
		return n.Address
	}
	return ""
}

// Occupied returns the number of an instance's players, or of the slots that are claimed if that is
// more.
func (s *Snapshot) Occupied(i *fleet.Instance) int {
	there, capacity := 0, 0
	if report, ok := s.Reports.Get(i.Node()); ok {
		told := report.Instances[i.Intent.ID]
		there, capacity = told.Players, told.MaxPlayers
	}
	claims, ok := s.Claims.Get(i.Intent.ID)
	if !ok {
		return there
	}
	if plan, ok := s.Plans.Get(i.Intent.Plan); ok && capacity == 0 {
		capacity = plan.Plan.MaxPlayers
	}
	return max(there, claims.Slots(i, capacity))
}

// GroupInstances yields a group's instances sorted by ID.
func (s *Snapshot) GroupInstances(g fleet.GroupName) iter.Seq[*fleet.Instance] {
	return within(s.byGroup, string(g), s.Instances.Get)
}

// NodeInstances yields the instances with a placement on a node, sorted by ID.
func (s *Snapshot) NodeInstances(n fleet.NodeID) iter.Seq[*fleet.Instance] {
	return within(s.byNode, string(n), s.joined)
}

// joined returns the joined records of an instance, with or without an intent.
func (s *Snapshot) joined(id fleet.InstanceID) (*fleet.Instance, bool) {
	if i, ok := s.Instances.Get(id); ok {
		return i, true
	}
	return s.Orphans.Get(id)
}

func within(t index, first string, get func(fleet.InstanceID) (*fleet.Instance, bool)) iter.Seq[*fleet.Instance] {
	return func(yield func(*fleet.Instance) bool) {
		for id := range under(t, pair(first+"\x00")) {
			if i, ok := get(fleet.InstanceID(id)); ok && !yield(i) {
				return
			}
		}
	}
}

// ByName returns the instance that has a name: the living one, or the latest one that had it.
func (s *Snapshot) ByName(name string) (*fleet.Instance, bool) {
	claim, ok := s.Name(name)
	if !ok {
		return nil, false
	}
	i, ok := s.Instances.Get(claim.ID)
	return i, ok && i.Intent.Name == name
}

// Find returns the instance with an ID or a name.
func (s *Snapshot) Find(idOrName string) (*fleet.Instance, bool) {
	if id := fleet.InstanceID(idOrName); id.Valid() {
		if i, ok := s.Instances.Get(id); ok {
			return i, true
		}
	}
	return s.ByName(idOrName)
}

// BindingsOf returns the bindings of a user by name. Do not modify the result.
func (s *Snapshot) BindingsOf(userID string) []*account.Binding {
	if s.Bindings.Len() == 0 {
		return nil
	}
	s.bound.once.Do(func() {
		s.bound.to = map[string][]*account.Binding{}
		for _, b := range s.Bindings.All() {
			for _, id := range b.Subjects {
				s.bound.to[id] = append(s.bound.to[id], b)
			}
		}
	})
	return s.bound.to[userID]
}

// TokenByHash returns the API token with a hash.
func (s *Snapshot) TokenByHash(hash string) (*account.APIToken, bool) {
	return s.tokensByHash.Get(hash)
}

// InstanceByToken returns the instance whose status has the hash of a root token.
func (s *Snapshot) InstanceByToken(hash string) (*fleet.Instance, bool) {
	id, ok := s.ownByHash.Get(hash)
	if !ok {
		return nil, false
	}
	return s.Instances.Get(id)
}

// Whole returns a group as its instances are built, with the values inherited from its parents. A
// value hidden by templates of a parent is hidden here too, regardless of the group's own
// templates.
func (s *Snapshot) Whole(g *fleet.Group) *fleet.Group {
	if g.Spec.Parent == "" {
		return g
	}
	whole := compose.Inherit(*g, s.concealing(compose.Ancestors(g, s.Groups.Get)))
	return &whole
}

// concealing returns the ancestors with the current visibility of their values, according to the
// templates of each ancestor itself.
func (s *Snapshot) concealing(ancestors []*fleet.Group) []*fleet.Group {
	if !slices.ContainsFunc(ancestors, func(a *fleet.Group) bool { return len(a.Spec.Variables) > 0 }) {
		return ancestors
	}
	definers, out := s.Definers(), slices.Clone(ancestors)
	for n, a := range ancestors {
		shown := *a
		shown.Hidden = compose.Conceal(a, definers.Of(a.Name, compose.Inherit(*a, ancestors[n+1:]).Spec))
		out[n] = &shown
	}
	return out
}

// Definers returns the templates that define variables.
func (s *Snapshot) Definers() compose.Definers {
	s.definers.once.Do(func() { s.definers.made = compose.NewDefiners(s.Heads()) })
	return s.definers.made
}

// Materials returns the inputs for composing plans.
func (s *Snapshot) Materials() compose.Materials {
	m := compose.Materials{Heads: s.Heads(), Catalog: map[string]*content.CatalogPlatform{}}
	for name, p := range s.Catalog.All() {
		m.Catalog[name] = p
	}
	return m
}

// Heads returns all template heads sorted by name, as fleet.Compose expects.
func (s *Snapshot) Heads() []content.TemplateHead {
	out := make([]content.TemplateHead, 0, s.TemplateHeads.Len())
	for _, h := range s.TemplateHeads.All() {
		out = append(out, *h)
	}
	return out
}

// ServiceSessions returns the live replicas of a service.
func (s *Snapshot) ServiceSessions(service string) []*cluster.Session {
	var out []*cluster.Session
	for _, v := range under(s.Sessions, service+"/") {
		out = append(out, v)
	}
	return out
}

// Name returns the claim on an instance's name, in any case of letters.
func (s *Snapshot) Name(name string) (*keys.NameClaim, bool) { return s.Names.Get(nameKey(name)) }

// Config returns the active version of the cluster's settings, zero before the first.
func (s *Snapshot) Config() cluster.ConfigActive {
	for _, active := range s.ConfigActive.All() {
		return *active
	}
	return cluster.ConfigActive{}
}

// Unmet returns the groups that a group depends on of which no instance is ONLINE or asleep.
func (s *Snapshot) Unmet(g *fleet.Group) (unmet []fleet.GroupName) {
	for _, name := range g.Spec.DependsOn {
		if !s.hasReady(name) {
			unmet = append(unmet, name)
		}
	}
	return unmet
}

func (s *Snapshot) hasReady(g fleet.GroupName) bool {
	for i := range s.GroupInstances(g) {
		if state := i.State(); state == fleet.Online || state == fleet.Sleeping {
			return true
		}
	}
	return false
}

// Target returns how many instances a group shall have: its minimum, as overlays change it, or more
// because of its load.
func (s *Snapshot) Target(g *fleet.Group) int {
	decided, _ := s.Scalings.Get(g.Name)
	return scaling.Target(&s.Overlaid(g).Spec, decided.TargetFor(g))
}

// Maintenance returns the maintenance of all groups, zero before the first.
func (s *Snapshot) Maintenance() cluster.Maintenance {
	for _, m := range s.Maintenances.All() {
		return *m
	}
	return cluster.Maintenance{}
}

// ActiveOverlays returns the overlays that are active, zero before the first.
func (s *Snapshot) ActiveOverlays() schedule.Active {
	for _, a := range s.activeOverlays.All() {
		return *a
	}
	return schedule.Active{}
}

// Overlaid returns a group as the active overlays change it. It is what the group is to be now; the
// group's own record stays as declared.
func (s *Snapshot) Overlaid(g *fleet.Group) *fleet.Group { return s.ActiveOverlays().Over(g) }

// MaintenanceOf returns the maintenance in force for a group: its own, as overlays change it, that of
// all groups, or both.
func (s *Snapshot) MaintenanceOf(g *fleet.Group) fleet.Maintenance {
	return s.Overlaid(g).Spec.Maintenance.Under(s.Maintenance().Maintenance)
}
