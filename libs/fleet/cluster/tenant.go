package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Tenant is the number of a static group. Each node counts from the first of its instance-uids to the
// user that the group's instances run as, so the user is the same on all nodes with the same range. The
// enforcer assigns it and never removes it: the directories of a deleted group stay on nodes, and belong
// to that user.
type Tenant struct {
	record.Rev
	Group fleet.GroupName `json:"group"`
	// Number counts from 1.
	Number int       `json:"number"`
	At     time.Time `json:"at"`
}

// TenantNumber says which group has a number. No two groups can have the same, because the enforcer
// creates it together with Tenant.
type TenantNumber struct {
	record.Rev
	Group fleet.GroupName `json:"group"`
}
