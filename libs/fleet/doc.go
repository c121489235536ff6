// Package fleet is the domain: one file per noun, its type, its Validate and
// its pure methods. Everything another package decides about groups, instances
// and nodes it decides with these types.
//
// # Glossary
//
//   - Group: what the operator declares; GroupSpec is its body.
//   - Intent: that one instance shall exist and run (or stop); written by enforcer and gateway.
//   - Plan: all that is needed to build and start an instance; immutable, keyed by its digest.
//   - Placement: where one generation of an instance runs; written by the scheduler, never edited.
//   - Order: what a placed instance shall do now (stop, kill); written by the enforcer.
//   - Status: what the agent saw; written by the agent.
//   - Pending: why an instance has no placement; written by the scheduler.
//   - Instance: all records of one instance joined, with its derived state.
//   - Node, NodeDesired, NodeSession, Report: a host, the operator's wishes for it, its liveness, its usage.
//   - Session: the liveness of a service replica.
//
// # Laws the types keep
//
// Records are values: nobody edits a record he did not write. Every record
// carries the revision it was read at (Rev), and every write compares it.
// Nothing here reads a clock, a file or the network; time comes in as an argument.
package fleet

// Rev is the revision pair of a stored record: when the key was created and
// when it was last written. Zero means the record was not read from the store.
// The store fills it; it is never part of the stored value.
type Rev struct {
	CreateRev int64 `json:"-"`
	ModRev    int64 `json:"-"`
}

// SetRev records where a value was read. Only the store's codec calls it.
func (r *Rev) SetRev(create, mod int64) { r.CreateRev, r.ModRev = create, mod }
