package events

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The types that changes of networks give.
const (
	NetworkCreated Type = "NETWORK_CREATED"
	NetworkUpdated Type = "NETWORK_UPDATED"
	NetworkDeleted Type = "NETWORK_DELETED"
)

// network tells of a network.
func (t *translator) network(c view.Change) {
	typ := NetworkUpdated
	switch before, after := record[fleet.Network](c.Before), record[fleet.Network](c.After); {
	case before == nil && after == nil:
		return
	case before == nil:
		typ = NetworkCreated
	case after == nil:
		typ = NetworkDeleted
	}
	t.store(Event{Type: typ, Fields: Fields{"networkName": c.Key[0]}})
}
