package store

import "github.com/orreryhq/orrery/libs/fleet"

func NetworkKey(name string) Key[fleet.Network] {
	return Key[fleet.Network]{Root + "networks/" + name}
}

// NetworkMarkKey is the one mark of all networks.
func NetworkMarkKey() Key[fleet.NetworkMark] {
	return Key[fleet.NetworkMark]{Root + "network-marks/all"}
}
