// Package health determines when a server is ready and whether it still works, by the checks
// that its group declares.
//
//	AwaitReady ──▶ nil: it is ready        Watch ──▶ unhealthy, healthy, unhealthy, …
//	   a probe, with growing pauses             a probe at an interval
//	   a line of the run's console              the age of the latest heartbeat
//	   a heartbeat that reports readiness
//	   a ping or a heartbeat
//
// Invariants:
//   - A server becomes unhealthy after the group's number of consecutive failures, and
//     healthy again after its number of successes; see tally.
//   - A missing heartbeat counts only while a heartbeat could have arrived. It says nothing
//     about the server if the agent was suspended, the node has no session or is revoked, or
//     the gateway is unreachable; see Heartbeats.
//   - Everything ends with its context.
//
// The machine decides what follows from a verdict.
package health
