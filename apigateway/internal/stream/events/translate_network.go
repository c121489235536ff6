package events

import (
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The event types of networks.
const (
	NetworkCreated Type = "NETWORK_CREATED"
	NetworkUpdated Type = "NETWORK_UPDATED"
	NetworkDeleted Type = "NETWORK_DELETED"
)

// network creates a network's event.
func (t *translator) network(c view.Change) {
	typ := NetworkUpdated
	switch before, after := record[players.Network](c.Before), record[players.Network](c.After); {
	case before == nil && after == nil:
		return
	case before == nil:
		typ = NetworkCreated
	case after == nil:
		typ = NetworkDeleted
	}
	t.store(Event{Type: typ, Fields: Fields{"networkName": c.Key[0]}})
}
