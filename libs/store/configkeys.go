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

// EgressUpgradeKey is the record that the addresses of earlier sources are in the allow list.
func EgressUpgradeKey() Key[fleet.EgressUpgrade] {
	return Key[fleet.EgressUpgrade]{Root + "egress-upgrade/cluster"}
}
