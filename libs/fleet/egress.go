package fleet

import "time"

// EgressUpgrade records that the addresses that sources and the catalog had before there was an
// allow list were entered into it, which happens once. The gateway writes it.
type EgressUpgrade struct {
	Rev
	At time.Time `json:"at"`
	// Entered are the hosts that were entered into the allow list, Refused those that were not,
	// since they lead to link-local addresses or to metadata of a cloud.
	Entered []string `json:"entered,omitempty"`
	Refused []string `json:"refused,omitempty"`
}
