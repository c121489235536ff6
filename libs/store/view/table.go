package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// kindTable says how a snapshot holds the records of one kind.
type kindTable struct {
	// segments is the number of segments of a key after its kind.
	segments int
	// forks replace trees by copies, or by empty trees if there are none yet. Kinds that share trees
	// are followed together, and one of them forks.
	forks []func(*Snapshot)
	// decode returns a pointer to the record. key are the segments of its key after the kind.
	decode func(key []string, kv store.KeyValue) (any, error)
	// apply applies one change to a snapshot under construction. The change has its record as After, or nil
	// if that was removed.
	apply func(*Snapshot, *Change)
}

// kindTables declares every kind that a view can follow.
func kindTables() map[Kind]*kindTable {
	return map[Kind]*kindTable{
		KindGroup: table(1, func(s *Snapshot) *Table[fleet.GroupName, *fleet.Group] { return &s.Groups }),
		KindIntent: {
			1, []func(*Snapshot){
				forks(func(s *Snapshot) *Table[fleet.InstanceID, *fleet.Instance] { return &s.Instances }),
				forks(func(s *Snapshot) *Table[fleet.InstanceID, *fleet.Instance] { return &s.Orphans }),
				forks(func(s *Snapshot) *index { return &s.byGroup }),
				forks(func(s *Snapshot) *index { return &s.byNode }),
				forks(func(s *Snapshot) *Table[string, fleet.InstanceID] { return &s.ownByHash }),
			}, decode[fleet.Intent], (*Snapshot).applyInstance,
		},
		KindPlacement:   {2, nil, decode[fleet.Placement], (*Snapshot).applyInstance},
		KindOrder:       {2, nil, decode[fleet.Order], (*Snapshot).applyInstance},
		KindStatus:      {1, nil, decode[fleet.Status], (*Snapshot).applyInstance},
		KindPending:     {1, nil, decode[fleet.Pending], (*Snapshot).applyInstance},
		KindNode:        table(1, func(s *Snapshot) *Table[fleet.NodeID, *fleet.Node] { return &s.Nodes }),
		KindNodeDesired: table(1, func(s *Snapshot) *Table[fleet.NodeID, *fleet.NodeDesired] { return &s.NodesDesired }),
		KindAlloc:       table(1, func(s *Snapshot) *Table[fleet.NodeID, *fleet.Alloc] { return &s.Allocs }),
		KindReport: {
			1, []func(*Snapshot){
				forks(func(s *Snapshot) *Table[fleet.NodeID, *reports.Report] { return &s.Reports }),
				forks(func(s *Snapshot) *Table[string, *reports.ReportPart] { return &s.reportParts }),
			}, decode[reports.Report], (*Snapshot).applyReport,
		},
		KindReportPart: {2, nil, decode[reports.ReportPart], (*Snapshot).applyReportPart},
		KindPlan:       table(1, func(s *Snapshot) *Table[string, *fleet.StoredPlan] { return &s.Plans }),
		KindTemplateHead: {
			2,
			[]func(*Snapshot){forks(func(s *Snapshot) *Table[string, *content.TemplateHead] { return &s.TemplateHeads })},
			decode[content.TemplateHead],
			func(s *Snapshot, c *Change) {
				s.definers = new(definers)
				set(s.TemplateHeads, c.Key[0]+"/"+c.Key[1], c)
			},
		},
		KindCrashLoop:  table(1, func(s *Snapshot) *Table[fleet.GroupName, *crashloop.Loop] { return &s.CrashLoops }),
		KindScaling:    table(1, func(s *Snapshot) *Table[fleet.GroupName, *scaling.Decision] { return &s.Scalings }),
		KindTenant:     table(1, func(s *Snapshot) *Table[fleet.GroupName, *cluster.Tenant] { return &s.Tenants }),
		KindCrash:      table(1, func(s *Snapshot) *Table[string, *reports.Crash] { return &s.Crashes }),
		KindName:       table(2, func(s *Snapshot) *Table[string, *keys.NameClaim] { return &s.Names }),
		KindCatalog:    table(1, func(s *Snapshot) *Table[string, *content.CatalogPlatform] { return &s.Catalog }),
		KindQuota:      table(1, func(s *Snapshot) *Table[string, *cluster.Quota] { return &s.Quotas }),
		KindQuotaAlloc: table(1, func(s *Snapshot) *Table[string, *cluster.QuotaAlloc] { return &s.QuotaAllocs }),
		KindEviction:   table(1, func(s *Snapshot) *Table[fleet.InstanceID, *fleet.Eviction] { return &s.Evictions }),
		KindUser:       table(1, func(s *Snapshot) *Table[string, *account.User] { return &s.Users }),
		KindAPIToken: {
			1, []func(*Snapshot){
				forks(func(s *Snapshot) *Table[string, *account.APIToken] { return &s.APITokens }),
				forks(func(s *Snapshot) *Table[string, *account.APIToken] { return &s.tokensByHash }),
			}, decode[account.APIToken], (*Snapshot).applyToken,
		},
		KindAudit: {
			1, []func(*Snapshot){
				forks(func(s *Snapshot) *Table[string, *account.AuditSlip] { return &s.Audit }),
				forks(func(s *Snapshot) *Table[pair, *account.AuditSlip] { return &s.auditOf }),
			}, decode[account.AuditSlip], (*Snapshot).applyAudit,
		},
		KindBinding: {
			1,
			[]func(*Snapshot){forks(func(s *Snapshot) *Table[string, *account.Binding] { return &s.Bindings })},
			decode[account.Binding],
			func(s *Snapshot, c *Change) {
				s.bound = new(bound)
				set(s.Bindings, c.Key[0], c)
			},
		},
		KindRole:          table(1, func(s *Snapshot) *Table[string, *account.Role] { return &s.Roles }),
		KindRevocation:    table(1, func(s *Snapshot) *Table[string, *account.Revocation] { return &s.Revocations }),
		KindLockout:       table(1, func(s *Snapshot) *Table[string, *account.Lockout] { return &s.Lockouts }),
		KindLogin:         table(1, func(s *Snapshot) *Table[string, *account.Login] { return &s.Logins }),
		KindKnownNetworks: table(1, func(s *Snapshot) *Table[string, *account.KnownNetworks] { return &s.KnownNetworks }),
		KindFactor:        table(1, func(s *Snapshot) *Table[string, *account.Factor] { return &s.Factors }),
		KindCredential:    table(1, func(s *Snapshot) *Table[fleet.InstanceID, *account.InstanceCredential] { return &s.Credentials }),
		KindSealedKey:     table(1, func(s *Snapshot) *Table[string, *account.SealedKey] { return &s.SealedKeys }),
		KindNetwork:       table(1, func(s *Snapshot) *Table[string, *players.Network] { return &s.Networks }),
		KindNameMark:      table(1, func(s *Snapshot) *Table[string, *keys.NameMark] { return &s.NameMarks }),
		KindMentionMark:   table(1, func(s *Snapshot) *Table[string, *players.MentionMark] { return &s.MentionMarks }),
		KindPlayers: {
			2, []func(*Snapshot){
				forks(func(s *Snapshot) *Table[string, *players.PresencePart] { return &s.PlayerParts }),
				forks(func(s *Snapshot) *Table[pair, *players.Presence] { return &s.byPlayer }),
				forks(func(s *Snapshot) *index { return &s.byTeller }),
			}, decode[players.PresencePart], (*Snapshot).applyPlayers,
		},
		KindClaims:        table(1, func(s *Snapshot) *Table[fleet.InstanceID, *allocation.Claims] { return &s.Claims }),
		KindMove:          table(1, func(s *Snapshot) *Table[fleet.InstanceID, *move.Move] { return &s.moves }),
		KindCopy:          table(1, func(s *Snapshot) *Table[fleet.InstanceID, *move.Copy] { return &s.copies }),
		KindTransfer:      table(1, func(s *Snapshot) *Table[players.PlayerID, *players.Transfer] { return &s.Transfers }),
		KindMessage:       table(1, func(s *Snapshot) *Table[string, *players.PlayerMessage] { return &s.Messages }),
		KindConfig:        table(1, func(s *Snapshot) *Table[string, *cluster.ConfigVersion] { return &s.ConfigVersions }),
		KindConfigActive:  table(1, func(s *Snapshot) *Table[string, *cluster.ConfigActive] { return &s.ConfigActive }),
		KindMaintenance:   table(1, func(s *Snapshot) *Table[string, *cluster.Maintenance] { return &s.Maintenances }),
		KindSchedule:      table(1, func(s *Snapshot) *Table[string, *schedule.Schedule] { return &s.Schedules }),
		KindScheduleState: table(1, func(s *Snapshot) *Table[string, *schedule.State] { return &s.ScheduleStates }),
		KindOverlay:       table(1, func(s *Snapshot) *Table[string, *schedule.Overlay] { return &s.Overlays }),
		KindActiveOverlay: table(1, func(s *Snapshot) *Table[string, *schedule.Active] { return &s.activeOverlays }),
		KindApplied:       table(2, func(s *Snapshot) *Table[string, *applied.Mark] { return &s.Applied }),
		KindNotice:        table(1, func(s *Snapshot) *Table[string, *notice.Notice] { return &s.Notices }),
		KindNoticeState:   table(1, func(s *Snapshot) *Table[string, *notice.State] { return &s.NoticeStates }),
		KindDeployment:    table(2, func(s *Snapshot) *Table[string, *deployment.Deployment] { return &s.deployments }),
		KindProgress:      table(2, func(s *Snapshot) *Table[string, *deployment.Progress] { return &s.progress }),
		KindRevokedNode:   table(1, func(s *Snapshot) *Table[fleet.NodeID, *cluster.RevokedNode] { return &s.RevokedNodes }),
		KindJoinToken:     table(1, func(s *Snapshot) *Table[fleet.NodeID, *cluster.JoinToken] { return &s.JoinTokens }),
		KindSession: {
			2,
			[]func(*Snapshot){
				forks(func(s *Snapshot) *Table[fleet.NodeID, *fleet.NodeSession] { return &s.NodeSessions }),
				forks(func(s *Snapshot) *Table[string, *cluster.Session] { return &s.Sessions }),
			},
			func(key []string, kv store.KeyValue) (any, error) {
				if key[0] == "node" {
					return decode[fleet.NodeSession](key, kv)
				}
				return decode[cluster.Session](key, kv)
			},
			func(s *Snapshot, c *Change) {
				if c.Key[0] == "node" {
					set(s.NodeSessions, fleet.NodeID(c.Key[1]), c)
					return
				}
				set(s.Sessions, c.Key[0]+"/"+c.Key[1], c)
			},
		},
	}
}

// AllKinds returns every kind that a view can follow.
func AllKinds() []Kind { return slices.Sorted(maps.Keys(kindTables())) }

// table holds a kind in one table, whose keys are the segments joined by slashes.
func table[K ~string, V any](segments int, at func(*Snapshot) *Table[K, *V]) *kindTable {
	return &kindTable{segments, []func(*Snapshot){forks(at)}, decode[V], func(s *Snapshot, c *Change) {
		set(*at(s), K(strings.Join(c.Key, "/")), c)
	}}
}

func decode[V any](_ []string, kv store.KeyValue) (any, error) { return store.DecodeNew[V](kv) }

// forks returns a function that forks one tree.
func forks[K cmp.Ordered, V any](at func(*Snapshot) *Table[K, V]) func(*Snapshot) {
	return func(s *Snapshot) {
		t := at(s)
		if t.tree == nil {
			t.tree = new(btree.Map[K, V])
			return
		}
		t.tree = t.tree.Copy()
	}
}

// fork returns a copy of a snapshot that shares all records. Trees are copied on write.
func (v *View) fork(s *Snapshot) *Snapshot {
	next := *s
	for _, fork := range v.forks {
		fork(&next)
	}
	return &next
}
