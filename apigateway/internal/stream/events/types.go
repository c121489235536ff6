package events

import (
	"slices"
	"strings"
)

// InstanceMetrics has metrics that a server measured itself. It is live only.
const InstanceMetrics Type = "INSTANCE_METRICS"

// reserved are types that existing clients know, but that this system never sends. Instances must not
// use them for their own events.
var reserved = []Type{
	"INSTANCE_CONSOLE_OUTPUT", "PLAYER_JOURNEY",
	"MODULE_LOADED", "MODULE_UNLOADED", "MODULE_FRONTEND_RELOADED", "CAPABILITY_REGISTERED",
	"CAPABILITY_UNREGISTERED", "CAPABILITY_PROVIDER_CHANGED",
}

// emitted are all types that this system sends.
var emitted = []Type{
	GroupCreated, GroupUpdated, GroupDeleted, GroupMaintenanceChanged, MaintenanceUpdated, GroupAggregatesUpdated, GroupCrashLoop, GroupScaled,
	DeploymentCreated, DeploymentProgress, DeploymentCompleted, DeploymentRolledBack,
	InstanceStateChanged, InstanceDraining, InstanceWarmChanged, InstanceCrashed, InstanceRemoved, InstanceMetrics,
	NodeConnected, NodeDisconnected, NodeCordonChanged, NodeDrainRequested, NodeDrainCompleted, NodeStatus, NodeCacheStatus, NodeHeartbeatStale, NodeHeartbeatResumed,
	TemplateUpdated, NetworkCreated, NetworkUpdated, NetworkDeleted, ClusterConfigChanged, ResourceChanged,
	ScheduleRunStarted, ScheduleRunEnded, OverlayActivated, OverlayDeactivated,
	InstanceMoveStarted, InstanceMoveStep, InstanceMoveEnded,
	PlayerConnected, PlayerDisconnected, PlayerTransfer, ResyncRequired,
}

// Ours reports whether a type is emitted or reserved, ignoring case.
func Ours(t Type) bool {
	t = Type(strings.ToUpper(string(t)))
	return slices.Contains(emitted, t) || slices.Contains(reserved, t)
}
