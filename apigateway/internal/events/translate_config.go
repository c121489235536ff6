package events

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ClusterConfigChanged says that another version of the cluster's settings holds.
const ClusterConfigChanged Type = "CLUSTER_CONFIG_CHANGED"

// config tells of the version that holds now. The parent of one that was rolled back to is
// the version that held before.
func (t *translator) config(c view.Change) {
	if a := record[fleet.ConfigActive](c.After); a != nil {
		t.store(Event{Type: ClusterConfigChanged, Fields: Fields{
			"version": a.Version, "parentVersion": a.Before, "mutator": a.By, "action": a.Action,
		}})
	}
}
