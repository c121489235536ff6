package events

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// Type is the type of an event.
type Type string

// Event types. The function that creates an event documents its fields.
const (
	GroupCreated            Type = "GROUP_CREATED"
	GroupUpdated            Type = "GROUP_UPDATED"
	GroupDeleted            Type = "GROUP_DELETED"
	GroupMaintenanceChanged Type = "GROUP_MAINTENANCE_CHANGED"
	GroupAggregatesUpdated  Type = "GROUP_AGGREGATES_UPDATED"
	GroupCrashLoop          Type = "GROUP_CRASH_LOOP"
	InstanceStateChanged    Type = "INSTANCE_STATE_CHANGED"
	InstanceCrashed         Type = "INSTANCE_CRASHED"
	InstanceDraining        Type = "INSTANCE_DRAINING"
	InstanceWarmChanged     Type = "INSTANCE_WARM_CHANGED"
	InstanceRemoved         Type = "INSTANCE_REMOVED"
	NodeConnected           Type = "NODE_CONNECTED"
	NodeDisconnected        Type = "NODE_DISCONNECTED"
	NodeCordonChanged       Type = "NODE_CORDON_CHANGED"
	NodeDrainRequested      Type = "NODE_DRAIN_REQUESTED"
	NodeDrainCompleted      Type = "NODE_DRAIN_COMPLETED"
	TemplateUpdated         Type = "TEMPLATE_UPDATED"
	// NodeHeartbeatStale and NodeHeartbeatResumed are live only: see Heartbeats.
	NodeHeartbeatStale   Type = "NODE_HEARTBEAT_STALE"
	NodeHeartbeatResumed Type = "NODE_HEARTBEAT_RESUMED"
	// NodeStatus is live only, like GroupAggregatesUpdated when only players changed.
	NodeStatus Type = "NODE_STATUS"
	// NodeCacheStatus is live only.
	NodeCacheStatus Type = "NODE_CACHE_STATUS"
	// Player events are live only.
	PlayerConnected    Type = "PLAYER_CONNECTED"
	PlayerDisconnected Type = "PLAYER_DISCONNECTED"
	PlayerTransfer     Type = "PLAYER_TRANSFER"
	// ResyncRequired tells a client that it missed events.
	ResyncRequired Type = "RESYNC_REQUIRED"
)

// Fields are an event's own fields by their JSON names.
type Fields map[string]any

// Event is a change in the fleet.
type Event struct {
	Type Type
	// At is the position right after the event, which is its ID. The zero Position means a live event,
	// which has no ID and is not replayed.
	At Position
	// Group is the event's group, for the filter ?group=; "" if none.
	Group fleet.GroupName
	// From is the group that a player left for Group; "" for other events. The filter matches it too.
	// It is not sent to clients.
	From fleet.GroupName
	// Instances are the servers and proxies of a player event. They are not sent to clients.
	Instances []fleet.InstanceID
	// Needs is the permission required to see the event; "" for none.
	Needs account.Permission
	// Fields must not be changed after the event was created.
	Fields Fields
	// frame is the encoded event, set when it enters a log.
	frame []byte
	// behind is the position of the event before a live one, set when it enters a log.
	behind Position
}

// concerns reports whether the event belongs to a group.
func (e Event) concerns(g fleet.GroupName) bool { return g != "" && (g == e.Group || g == e.From) }

// Live reports whether the event has no id.
func (e Event) Live() bool { return e.At == Position{} }

// framed returns the event as an SSE frame, with its ID if it has one.
func (e Event) framed() []byte { return e.framedAs(e.At.Rev) }

// framedAs is framed with another sequence number.
func (e Event) framedAs(sequence int64) []byte {
	out := []byte("event: message\n")
	if !e.Live() {
		out = fmt.Appendf(out, "id: %s\n", e.At)
	}
	return fmt.Appendf(out, "data: %s\n\n", e.encode(sequence))
}

// encode returns the event's JSON: its fields, type and sequence number (0 for none).
func (e Event) encode(sequence int64) []byte {
	out := make(Fields, len(e.Fields)+2)
	maps.Copy(out, e.Fields)
	out["type"] = e.Type
	if sequence != 0 {
		out["sequence"] = sequence
	}
	b, err := json.Marshal(out)
	if err != nil { // unreachable: only strings, numbers and times
		return fmt.Appendf(nil, `{"type":%q}`, e.Type)
	}
	return b
}
