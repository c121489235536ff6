package store

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
)

// ConfigVersionKey is of one version; its keys are in the order of versions.
func ConfigVersionKey(version int64) Key[fleet.ConfigVersion] {
	return Key[fleet.ConfigVersion]{fmt.Sprintf("%sconfig/%012d", Root, version)}
}

// ConfigActiveKey is the one record of which version holds.
func ConfigActiveKey() Key[fleet.ConfigActive] {
	return Key[fleet.ConfigActive]{Root + "config-active/cluster"}
}
