package store

import "github.com/orreryhq/orrery/libs/fleet"

// JoinTokenKey is written by the gateway.
func JoinTokenKey(n fleet.NodeID) Key[fleet.JoinToken] {
	return Key[fleet.JoinToken]{Root + "join-tokens/" + string(n)}
}
