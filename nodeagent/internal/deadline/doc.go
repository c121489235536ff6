// Package deadline keeps the moment until which a node's exclusive instances may
// run: a TTL after the session's last confirmed keep-alive was sent.
//
//	              StopAt                KillAt               At
//	valid ──────────┼──── stopping ───────┼────── lapsed ─────┼─▶
//	  ▲             │                     │
//	  └── renewed ──┴─── a new session ───┘
//
// The Keeper follows the session, writes each new deadline to a small file, and
// tells the agent when instances have to be stopped and to be killed. The guards of
// the instances read the file, so that the deadline holds though the agent does not
// run any more.
//
// Invariants:
//   - The file never says a later moment than a TTL after that keep-alive was sent, even
//     if the machine slept meanwhile.
//   - All moments are of CLOCK_BOOTTIME. Nobody can set it, and it goes on while the
//     machine is suspended, as the lease in etcd does; CLOCK_MONOTONIC stands still
//     then, and a deadline measured by it would come too late.
//   - A pause of the whole machine may stop the boot clock too. A forward step of the wall
//     clock shows it: then nothing starts until the session is renewed, and what runs
//     gets a margin for that.
//   - A file that is missing, damaged or of another boot allows nothing.
//
// What it does not do: it does not kill. The agent and the guards do.
package deadline
