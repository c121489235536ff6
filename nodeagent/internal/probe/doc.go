// Package probe asks servers over the network whether they serve, and how many
// players they have.
//
//	Check ──Ask──▶ Answer   it serves
//	           └─▶ error    nobody answers (Unavailable), or not what was expected (Invalid)
//
// One call asks once and is bounded by its context. What a server sends is trusted in
// nothing: sizes are bounded before memory is taken.
//
// Checks of lines and heartbeats come to the agent by themselves and are not asked here.
package probe
