package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// EgressUpgrade records that the hosts already used by sources and the catalog were added to the
// egress allow list. This happens once, on the upgrade to the first version with such a list. The
// gateway writes it.
type EgressUpgrade struct {
	record.Rev
	At time.Time `json:"at"`
	// Entered are the hosts that were added. Refused are hosts that were not added because they
	// resolve to link-local or cloud metadata addresses.
	Entered []string `json:"entered,omitempty"`
	Refused []string `json:"refused,omitempty"`
}
