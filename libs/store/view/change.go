package view

import "github.com/orreryhq/orrery/libs/fleet"

// Kind is which kind of record changed: the first segment of its key.
type Kind string

// The kinds a view follows.
const (
	KindGroup         Kind = "groups"
	KindIntent        Kind = "instances"
	KindName          Kind = "names"
	KindPlan          Kind = "plans"
	KindPlacement     Kind = "placements"
	KindOrder         Kind = "orders"
	KindPending       Kind = "pending"
	KindAlloc         Kind = "allocs"
	KindStatus        Kind = "status"
	KindNode          Kind = "nodes"
	KindNodeDesired   Kind = "nodes-desired"
	KindSession       Kind = "sessions" // of nodes and of services
	KindReport        Kind = "reports"
	KindTemplateHead  Kind = "template-heads"
	KindCrashLoop     Kind = "crashloops"
	KindCrash         Kind = "crashes" // without their tails
	KindQuota         Kind = "quotas"
	KindCatalog       Kind = "catalog"
	KindQuotaAlloc    Kind = "quota-allocs"
	KindEviction      Kind = "evictions"
	KindUser          Kind = "users"
	KindAPIToken      Kind = "tokens"
	KindRole          Kind = "roles"
	KindRevocation    Kind = "revocations"
	KindLockout       Kind = "lockouts"
	KindLogin         Kind = "logins"
	KindKnownNetworks Kind = "known-networks"
	KindCredential    Kind = "credentials"
	KindSealedKey     Kind = "pki"
	KindNetwork       Kind = "networks"
	KindMentionMark   Kind = "mention-marks"
	KindAudit         Kind = "audit" // without what was changed
	KindPlayers       Kind = "players"
	KindReportPart    Kind = "figures" // a change of one is a change of its node's KindReport
	KindTransfer      Kind = "transfers"
	KindMessage       Kind = "messages"
	KindConfig        Kind = "config"
	KindConfigActive  Kind = "config-active"
	KindRevokedNode   Kind = "revoked-nodes"
	KindJoinToken     Kind = "join-tokens"
)

// Change is one record's change.
type Change struct {
	Kind Kind
	// Rev is the revision of the change; of a relist for changes found by one.
	Rev int64
	// Key holds the key's segments after the kind.
	Key []string
	// Before and After are the record, a pointer to its fleet type; nil when it did not or does not exist.
	Before, After any
	// Instance, InstanceBefore are the joined instance for the kinds that belong
	// to one (intent, placement, order, status, pending); nil when there is none.
	InstanceBefore, Instance *fleet.Instance
	// JoinedBefore, Joined are the same for whoever accounts for records, whether
	// they have an intent or not; nil when there was or is no record at all.
	JoinedBefore, Joined *fleet.Instance
}

// Group is the group an instance's or group's change concerns, "" for others.
func (c Change) Group() fleet.GroupName {
	switch {
	case c.Instance != nil:
		return c.Instance.Intent.Group
	case c.InstanceBefore != nil:
		return c.InstanceBefore.Intent.Group
	case c.Kind == KindGroup || c.Kind == KindCrashLoop:
		return fleet.GroupName(c.Key[0])
	}
	return ""
}

// Batch is what one step of the view changed.
type Batch struct {
	// Before and After are the snapshots around the step.
	Before, After *Snapshot
	Changes       []Change
	// Relisted is true when the changes were found by comparing with a new list:
	// intermediate states are lost, and revisions are the list's.
	Relisted bool
	// Rewound is true when etcd went back in time, as one restored from a backup does:
	// After is of another past than Before, and its revision may be lower. A revision
	// kept from before is worthless. Such a batch is Relisted too.
	Rewound bool
}
