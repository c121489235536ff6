package events

import (
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ClusterConfigChanged reports that another version of the cluster settings is active.
const ClusterConfigChanged Type = "CLUSTER_CONFIG_CHANGED"

// config creates the event for the active settings. After a rollback, the event's parent is the
// previously active version.
func (t *translator) config(c view.Change) {
	if a := record[cluster.ConfigActive](c.After); a != nil {
		t.store(Event{Type: ClusterConfigChanged, Fields: Fields{
			"version": a.Version, "parentVersion": a.Before, "mutator": a.By, "action": a.Action,
		}})
	}
}
