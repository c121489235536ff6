package store

import (
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet"
)

// PlayersKey is written by the node's agent.
func PlayersKey(n fleet.NodeID, part int) Key[fleet.PresencePart] {
	return Key[fleet.PresencePart]{Root + "players/" + string(n) + "/" + strconv.Itoa(part)}
}

// PlayersOn are the players of one node.
func PlayersOn(n fleet.NodeID) Prefix[fleet.PresencePart] {
	return Prefix[fleet.PresencePart]{Root + "players/" + string(n) + "/"}
}

// ReportPartKey is written by the node's agent.
func ReportPartKey(n fleet.NodeID, part int) Key[fleet.ReportPart] {
	return Key[fleet.ReportPart]{Root + "figures/" + string(n) + "/" + strconv.Itoa(part)}
}

// ReportPartsOn are the live figures of one node's instances.
func ReportPartsOn(n fleet.NodeID) Prefix[fleet.ReportPart] {
	return Prefix[fleet.ReportPart]{Root + "figures/" + string(n) + "/"}
}

// TransferKey is written by the gateway.
func TransferKey(id fleet.PlayerID) Key[fleet.Transfer] {
	return Key[fleet.Transfer]{Root + "transfers/" + string(id)}
}

// MessageKey is written by the gateway, on a lease of its own.
func MessageKey(id string) Key[fleet.PlayerMessage] {
	return Key[fleet.PlayerMessage]{Root + "messages/" + id}
}

// CredentialKey is written by the gateway, and removed with the instance.
func CredentialKey(id fleet.InstanceID) Key[fleet.InstanceCredential] {
	return Key[fleet.InstanceCredential]{Root + "credentials/" + string(id)}
}
