package events

import (
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/view"
)

// MaintenanceUpdated reports a change of the maintenance of all groups.
const MaintenanceUpdated Type = "MAINTENANCE_UPDATED"

func (t *translator) maintenance(c view.Change) {
	if m := record[cluster.Maintenance](c.After); m != nil {
		t.store(Event{Type: MaintenanceUpdated, Fields: Fields{"globalEnabled": m.On, "message": m.Message}})
	}
}
