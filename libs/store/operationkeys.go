package store

import "github.com/orreryhq/orrery/libs/fleet"

// OperationKey remembers a request that was carried out, for a day; see Memory.
func OperationKey(id string) Key[fleet.Operation] {
	return Key[fleet.Operation]{Operations().path + id}
}

func Operations() Prefix[fleet.Operation] { return Prefix[fleet.Operation]{Root + "operations/"} }
