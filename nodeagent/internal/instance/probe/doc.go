// Package probe queries servers over the network: whether they answer, and how many players
// they have.
//
//	Check ──Ask──▶ Answer   it works
//	           └─▶ error    no answer (Unavailable), or an unexpected one (Invalid)
//
// A call sends one query and is bounded by its context. It trusts nothing that a server
// sends: sizes are checked before memory is allocated.
//
// Checks of log lines and heartbeats need no query; see package health.
package probe
