package keys

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/allocation"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// The keys of instances and their players.

// Intent is that an instance shall exist, and its desired state. Written by the gateway and the
// enforcer.
func Intent(id fleet.InstanceID) Key[fleet.Intent] {
	return Key[fleet.Intent]{Root + "instances/" + string(id)}
}

// Intents are the intents of all instances.
func Intents() Prefix[fleet.Intent] { return Prefix[fleet.Intent]{Root + "instances/"} }

// Plan is how an instance is built and run. Plans with equal content share a record. Written by
// the gateway and the enforcer.
func Plan(digest string) Key[fleet.StoredPlan] {
	return Key[fleet.StoredPlan]{Root + "plans/" + digest}
}

// Plans are all plans.
func Plans() Prefix[fleet.StoredPlan] { return Prefix[fleet.StoredPlan]{Root + "plans/"} }

// Placement assigns an instance to a node, with its ports. Written by the scheduler.
func Placement(node fleet.NodeID, id fleet.InstanceID) Key[fleet.Placement] {
	return Key[fleet.Placement]{Root + "placements/" + string(node) + "/" + string(id)}
}

// PlacementsOn are the placements on one node.
func PlacementsOn(node fleet.NodeID) Prefix[fleet.Placement] {
	return Prefix[fleet.Placement]{Root + "placements/" + string(node) + "/"}
}

// Order tells a node to stop, kill or put to sleep an instance. Written by the enforcer.
func Order(node fleet.NodeID, id fleet.InstanceID) Key[fleet.Order] {
	return Key[fleet.Order]{Root + "orders/" + string(node) + "/" + string(id)}
}

// OrdersOn are the orders to one node.
func OrdersOn(node fleet.NodeID) Prefix[fleet.Order] {
	return Prefix[fleet.Order]{Root + "orders/" + string(node) + "/"}
}

// Pending is why an instance has no placement. The transaction that places the instance removes
// it. Written by the scheduler.
func Pending(id fleet.InstanceID) Key[fleet.Pending] {
	return Key[fleet.Pending]{Root + "pending/" + string(id)}
}

// Eviction asks the enforcer to stop an instance so that its resources become free, or to move
// it. Created by the scheduler, removed by the enforcer.
func Eviction(id fleet.InstanceID) Key[fleet.Eviction] {
	return Key[fleet.Eviction]{Root + "evictions/" + string(id)}
}

// Status is the observed state of an instance. Written by the agent of its node.
func Status(id fleet.InstanceID) Key[fleet.Status] {
	return Key[fleet.Status]{Root + "status/" + string(id)}
}

// Crash is the unexpected end of a run. Created by the agent together with CrashTail, removed
// by the enforcer.
func Crash(id string) Key[reports.Crash] { return Key[reports.Crash]{Root + "crashes/" + id} }

// Crashes are all crashes.
func Crashes() Prefix[reports.Crash] { return Prefix[reports.Crash]{Root + "crashes/"} }

// CrashTail is the last output of a crashed run. No view holds it. Created by the agent
// together with Crash, removed by the enforcer.
func CrashTail(id string) Key[reports.CrashTail] {
	return Key[reports.CrashTail]{Root + "crash-tails/" + id}
}

// Credential is the token generation of an instance. It is removed with the instance. Written
// by the gateway.
func Credential(id fleet.InstanceID) Key[account.InstanceCredential] {
	return Key[account.InstanceCredential]{Root + "credentials/" + string(id)}
}

// Claims are the allocations of an instance. They are removed with the instance. Written by the
// gateway.
func Claims(id fleet.InstanceID) Key[allocation.Claims] {
	return Key[allocation.Claims]{Root + "claims/" + string(id)}
}

// Move is the latest move of a static instance to another node. It is removed with the instance.
// Created and cancelled by the gateway, continued by the enforcer.
func Move(id fleet.InstanceID) Key[move.Move] { return Key[move.Move]{Root + "moves/" + string(id)} }

// Moves are the latest moves of all instances.
func Moves() Prefix[move.Move] { return Prefix[move.Move]{Root + "moves/"} }

// Copy is how far the copy of a move is. It is removed with the instance. Written by the agent of the
// move's target.
func Copy(id fleet.InstanceID) Key[move.Copy] { return Key[move.Copy]{Root + "copies/" + string(id)} }

// Transfer is a player who is being moved to another instance. Written by the gateway.
func Transfer(player players.PlayerID) Key[players.Transfer] {
	return Key[players.Transfer]{Root + "transfers/" + string(player)}
}

// Message is a message to players. It has a lease of its own. Written by the gateway.
func Message(id string) Key[players.PlayerMessage] {
	return Key[players.PlayerMessage]{Root + "messages/" + id}
}
