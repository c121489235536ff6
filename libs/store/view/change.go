package view

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// Kind is the kind of a changed record: the first segment of its key.
type Kind string

// The kinds a view can follow. KindIntent, KindPlacement, KindOrder, KindStatus and KindPending make up
// an instance.
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
	KindScaling       Kind = "scaling"
	KindTenant        Kind = "tenants"
	KindCrash         Kind = "crashes" // without their tails
	KindQuota         Kind = "quotas"
	KindCatalog       Kind = "catalog"
	KindQuotaAlloc    Kind = "quota-allocs"
	KindEviction      Kind = "evictions"
	KindUser          Kind = "users"
	KindAPIToken      Kind = "tokens"
	KindRole          Kind = "roles"
	KindBinding       Kind = "bindings"
	KindRevocation    Kind = "revocations"
	KindLockout       Kind = "lockouts"
	KindLogin         Kind = "logins"
	KindKnownNetworks Kind = "known-networks"
	KindFactor        Kind = "second-factors"
	KindCredential    Kind = "credentials"
	KindSealedKey     Kind = "pki"
	KindNetwork       Kind = "networks"
	KindNameMark      Kind = "name-marks"
	KindMentionMark   Kind = "mention-marks"
	KindAudit         Kind = "audit" // without what was changed
	KindPlayers       Kind = "players"
	KindReportPart    Kind = "figures" // a change of one is a change of its node's KindReport
	KindClaims        Kind = "claims"
	KindMove          Kind = "moves"
	KindCopy          Kind = "copies"
	KindTransfer      Kind = "transfers"
	KindMessage       Kind = "messages"
	KindConfig        Kind = "config"
	KindConfigActive  Kind = "config-active"
	KindMaintenance   Kind = "maintenance"
	KindSchedule      Kind = "schedules"
	KindScheduleState Kind = "schedule-states"
	KindOverlay       Kind = "overlays"
	KindActiveOverlay Kind = "active-overlays"
	KindDeployment    Kind = "deployments"
	KindProgress      Kind = "deployment-progress"
	KindNotice        Kind = "notices"
	KindNoticeState   Kind = "notice-states"
	KindApplied       Kind = "applied" // without the documents
	KindRevokedNode   Kind = "revoked-nodes"
	KindJoinToken     Kind = "join-tokens"
)

// Change is the change of one record.
type Change struct {
	Kind Kind
	// Rev is the revision of the change. For a change found by a relist it is the list's.
	Rev int64
	// Key contains the key's segments after the kind.
	Key []string
	// Before and After are the record as a pointer to its fleet type, nil if it did not or does
	// not exist.
	Before, After any
	// Instance and InstanceBefore are the joined instance, for kinds that belong to one (intent,
	// placement, order, status, pending). They are nil without an intent.
	InstanceBefore, Instance *fleet.Instance
	// JoinedBefore and Joined are the joined records of the instance, with or without an intent.
	// They are nil if there is no record at all.
	JoinedBefore, Joined *fleet.Instance
}

// Group returns the group that an instance's or group's change concerns, "" for others.
func (c Change) Group() fleet.GroupName {
	switch {
	case c.Instance != nil:
		return c.Instance.Intent.Group
	case c.InstanceBefore != nil:
		return c.InstanceBefore.Intent.Group
	case c.Kind == KindGroup || c.Kind == KindCrashLoop || c.Kind == KindScaling || c.Kind == KindDeployment || c.Kind == KindProgress:
		return fleet.GroupName(c.Key[0])
	}
	return ""
}

// Batch is the result of one step of the view.
type Batch struct {
	// Before and After are the snapshots before and after the step.
	Before, After *Snapshot
	Changes       []Change
	// Relisted is true if the changes were found by comparison with a new list: intermediate
	// states are missing, and removals have the revision of the list. All changes of an instance share
	// one new join, which is the InstanceBefore and JoinedBefore of all but the first of them. The first
	// one is the intent's if it changed, else the placement's or the status's.
	Relisted bool
	// Rewound is true if etcd went back in time, e.g. was restored from a backup. After then comes
	// from a different history than Before, its revision may be lower, and stored revisions are
	// invalid. Such a batch is also Relisted.
	Rewound bool
}
