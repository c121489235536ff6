// Package health finds out when a server is ready and whether it still serves, in the
// way its group declares.
//
//	AwaitReady ──▶ nil: it is ready        Watch ──▶ sick, well, sick, …
//	   a probe, asked ever more seldom          a probe, asked at an interval
//	   a line of this run's console             the age of its latest heartbeat
//	   a heartbeat that says so
//	   a ping or a heartbeat
//
// Invariants:
//   - A server is sick after so many failures in a row as its group says, and well again
//     after so many successes; see tally.
//   - Missing heartbeats count only while a heartbeat could have arrived. They prove nothing
//     about the server when the agent slept, the node has no session or is revoked, or the
//     gateway is away; see Pulse.
//   - Everything ends with its context and leaves nothing running.
//
// What follows from a verdict is decided elsewhere.
package health
