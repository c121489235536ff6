package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Maintenance is the maintenance of all groups at once. While it is on, the enforcer starts no
// instance of any group; running instances stay. The gateway writes it. It does not exist before it
// is first turned on.
type Maintenance struct {
	record.Rev
	fleet.Maintenance
	By string    `json:"by"`
	At time.Time `json:"at"`
}
