package store

import "github.com/orreryhq/orrery/libs/fleet"

// RevokedNodeKey is written by the gateway, and read by the node's agent.
func RevokedNodeKey(n fleet.NodeID) Key[fleet.RevokedNode] {
	return Key[fleet.RevokedNode]{Root + "revoked-nodes/" + string(n)}
}

// JoinTokenKey is written by the gateway.
func JoinTokenKey(n fleet.NodeID) Key[fleet.JoinToken] {
	return Key[fleet.JoinToken]{Root + "join-tokens/" + string(n)}
}

// DeletedNodeKey is written by the enforcer, on a lease of fleet.DeletedNodeFor, and read by
// the node's agent.
func DeletedNodeKey(n fleet.NodeID) Key[fleet.DeletedNode] {
	return Key[fleet.DeletedNode]{Root + "deleted-nodes/" + string(n)}
}
