// Package deadline keeps the deadline of a node's exclusive instances: one TTL after the
// session's last confirmed keep-alive was sent.
//
//	              StopAt                KillAt               At
//	valid ──────────┼──── stopping ───────┼────── lapsed ─────┼─▶
//	  ▲             │                     │
//	  └── renewed ──┴─── a new session ───┘
//
// The Keeper follows the session, writes each new deadline to a small file, and tells the
// agent when to stop and when to kill the instances. The guards of the instances read the
// file, so that the deadline is enforced even if the agent no longer runs.
//
// Invariants:
//   - The deadline in the file is at most one TTL after that keep-alive was sent, even if
//     the machine was suspended meanwhile.
//   - All moments are of CLOCK_BOOTTIME. It cannot be set, and it continues while the
//     machine is suspended, like the lease in etcd. CLOCK_MONOTONIC stops then, and a
//     deadline measured by it would be too late.
//   - If the whole machine is paused, the boot clock may stop too. The wall clock then steps
//     forward. After such a step nothing starts until the session is renewed, and running
//     instances get a margin for the renewal.
//   - If the file is missing, damaged or of another boot, the deadline has passed.
//
// The package does not kill. The agent and the guards do.
package deadline
