// Package arena is a small but honest network server to try Orrery with and to test it
// against. It behaves as game servers do: it has a config file, a console, a world it
// loads and saves, a classic log, and it shows itself in the server list of a real
// Minecraft client. There is no game behind it: who tries to join is told so politely.
//
//	start ─▶ lock ─▶ (boot delay) ─▶ listen ─▶ load world ─▶ "Done" ─▶ stop ─▶ save ─▶ exit 0
//
// Flags make it misbehave on purpose: boot late, crash, ignore its console or signals,
// burn memory and CPU, flood its log, leave a daemon behind. Main's usage text lists them.
//
// Invariants:
//   - One goroutine, the loop of run, owns the world and decides; connections see only
//     settings that never change.
//   - Connections are bounded in number, in time and in what they may send.
//   - The world file is replaced as a whole: a crash leaves the old one or the new one.
//   - The end of stdin is not a stop.
//   - Only the standard library is used, so that thousands of it start fast.
package arena
