package keys

import (
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// The keys of nodes.

// Node is what a node offers: address, capacity and runtimes. Written by its agent.
func Node(id fleet.NodeID) Key[fleet.Node] { return Key[fleet.Node]{Root + "nodes/" + string(id)} }

// NodeDesired is what operators set for a node: cordon, labels, room for instances, or its
// deletion. Written by the gateway.
func NodeDesired(id fleet.NodeID) Key[fleet.NodeDesired] {
	return Key[fleet.NodeDesired]{Root + "nodes-desired/" + string(id)}
}

// Alloc is touched by each placement on a node, so that two schedulers cannot use the same
// resources. Written by the scheduler.
func Alloc(node fleet.NodeID) Key[fleet.Alloc] {
	return Key[fleet.Alloc]{Root + "allocs/" + string(node)}
}

// NodeSession exists while the lease of a node's agent is alive. Written by the agent.
func NodeSession(id fleet.NodeID) Key[fleet.NodeSession] {
	return Key[fleet.NodeSession]{Root + "sessions/node/" + string(id)}
}

// NodeSessions are the sessions of all nodes with a live agent.
func NodeSessions() Prefix[fleet.NodeSession] {
	return Prefix[fleet.NodeSession]{Root + "sessions/node/"}
}

// Report is how busy a node is. Written by its agent.
func Report(node fleet.NodeID) Key[reports.Report] {
	return Key[reports.Report]{Root + "reports/" + string(node)}
}

// ReportPart holds players, heartbeat, TPS, memory, CPU and disk of some instances of a node.
// Instances are distributed over 16 parts by a hash. Written by the node's agent.
func ReportPart(node fleet.NodeID, part int) Key[reports.ReportPart] {
	return Key[reports.ReportPart]{Root + "figures/" + string(node) + "/" + strconv.Itoa(part)}
}

// ReportPartsOn are the figures of one node's instances.
func ReportPartsOn(node fleet.NodeID) Prefix[reports.ReportPart] {
	return Prefix[reports.ReportPart]{Root + "figures/" + string(node) + "/"}
}

// Players holds some players of a node's instances. Players are distributed over 64 parts by a
// hash, so that a player who joins rewrites one part. Written by the node's agent.
func Players(node fleet.NodeID, part int) Key[players.PresencePart] {
	return Key[players.PresencePart]{Root + "players/" + string(node) + "/" + strconv.Itoa(part)}
}

// PlayersOn are the players of one node's instances.
func PlayersOn(node fleet.NodeID) Prefix[players.PresencePart] {
	return Prefix[players.PresencePart]{Root + "players/" + string(node) + "/"}
}

// RevokedNode is until when a node may not take part: proxies refuse its calls, and the transaction that
// opens its session requires that the record is absent. Written by the gateway.
func RevokedNode(id fleet.NodeID) Key[cluster.RevokedNode] {
	return Key[cluster.RevokedNode]{Root + "revoked-nodes/" + string(id)}
}

// JoinToken is the hash of the token that lets a host join as a node, and which host used it. It is
// removed when the node has joined, or a day after the token expired. Written by the gateway.
func JoinToken(node fleet.NodeID) Key[cluster.JoinToken] {
	return Key[cluster.JoinToken]{Root + "join-tokens/" + string(node)}
}

// DeletedNode is the revision of a node's record that an operator deleted. It has a lease of 30
// days. An agent that returns can tell by it that etcd lost no data. Written by the enforcer.
func DeletedNode(id fleet.NodeID) Key[cluster.DeletedNode] {
	return Key[cluster.DeletedNode]{Root + "deleted-nodes/" + string(id)}
}
