package events

import (
	"encoding/json"
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Type is what an event says happened.
type Type string

// The types that changes of state give. The fields of each stand with the
// function that makes it.
const (
	GroupCreated            Type = "GROUP_CREATED"
	GroupUpdated            Type = "GROUP_UPDATED"
	GroupDeleted            Type = "GROUP_DELETED"
	GroupMaintenanceChanged Type = "GROUP_MAINTENANCE_CHANGED"
	GroupAggregatesUpdated  Type = "GROUP_AGGREGATES_UPDATED"
	GroupCrashLoop          Type = "GROUP_CRASH_LOOP"
	InstanceStateChanged    Type = "INSTANCE_STATE_CHANGED"
	InstanceCrashed         Type = "INSTANCE_CRASHED"
	InstanceRemoved         Type = "INSTANCE_REMOVED"
	NodeConnected           Type = "NODE_CONNECTED"
	NodeDisconnected        Type = "NODE_DISCONNECTED"
	NodeCordonChanged       Type = "NODE_CORDON_CHANGED"
	TemplateUpdated         Type = "TEMPLATE_UPDATED"
	// NodeHeartbeatStale and NodeHeartbeatResumed are live only: see Heartbeats.
	NodeHeartbeatStale   Type = "NODE_HEARTBEAT_STALE"
	NodeHeartbeatResumed Type = "NODE_HEARTBEAT_RESUMED"
	// NodeStatus is live only, like GroupAggregatesUpdated when only players changed.
	NodeStatus Type = "NODE_STATUS"
	// NodeCacheStatus is live only.
	NodeCacheStatus Type = "NODE_CACHE_STATUS"
	// Those of players are live only.
	PlayerConnected    Type = "PLAYER_CONNECTED"
	PlayerDisconnected Type = "PLAYER_DISCONNECTED"
	PlayerTransfer     Type = "PLAYER_TRANSFER"
	// ResyncRequired tells one client that events before it are lost to that client.
	ResyncRequired Type = "RESYNC_REQUIRED"
)

// Fields are an event's own fields, by their JSON names.
type Fields map[string]any

// Event is one thing that happened.
type Event struct {
	Type Type
	// At is the position right after the event, which is its id. The zero Position
	// means a live event: it has no id and is never replayed.
	At Position
	// Group is the group it concerns, "" when none; what ?group= filters by.
	Group fleet.GroupName
	// From is the group that a player left for Group, "" for all else. It concerns that as
	// much; clients are not told.
	From fleet.GroupName
	// Instances are the servers and proxies a player event concerns. Clients do not see them.
	Instances []fleet.InstanceID
	// Needs is the permission without which nobody is told; "" for what every user may hear.
	Needs fleet.Permission
	// Fields are the event's own fields. Never changed once the event was made.
	Fields Fields
	// frame is the event as every client is sent it, filled when it enters a log.
	frame []byte
	// behind is the position of the event before a live one, filled when it enters a log.
	behind Position
}

// concerns reports whether it is of a group.
func (e Event) concerns(g fleet.GroupName) bool { return g != "" && (g == e.Group || g == e.From) }

// Live reports whether the event has no id.
func (e Event) Live() bool { return e.At == Position{} }

// framed is the event as it is sent: with its id, if it has one.
func (e Event) framed() []byte { return e.framedAs(e.At.Rev) }

// framedAs is framed with another sequence.
func (e Event) framedAs(sequence int64) []byte {
	out := []byte("event: message\n")
	if !e.Live() {
		out = fmt.Appendf(out, "id: %s\n", e.At)
	}
	return fmt.Appendf(out, "data: %s\n\n", e.encode(sequence))
}

// encode is the event as clients read it: its fields, its type and a sequence, 0 for none.
func (e Event) encode(sequence int64) []byte {
	out := make(Fields, len(e.Fields)+2)
	for k, v := range e.Fields {
		out[k] = v
	}
	out["type"] = e.Type
	if sequence != 0 {
		out["sequence"] = sequence
	}
	b, err := json.Marshal(out)
	if err != nil { // fields are strings, numbers, times and lists of them
		return fmt.Appendf(nil, `{"type":%q}`, e.Type)
	}
	return b
}
