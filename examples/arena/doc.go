// Package arena is a small network server for trying and testing Orrery. It behaves like a
// game server: it has a config file, a console, a log, and a world that it loads and saves.
// It appears in the server list of a real Minecraft client. It has no game, and refuses
// logins politely.
//
//	start ─▶ lock ─▶ (boot delay) ─▶ listen ─▶ load world ─▶ "Done" ─▶ stop ─▶ save ─▶ exit 0
//
// Flags make it misbehave: boot late, crash, ignore its console or signals, use memory and
// CPU, flood its log, leave a daemon behind. Main's usage text lists them.
//
// Invariants:
//
//   - One goroutine, the loop of run, owns the world and makes all decisions. Connections
//     see only settings that never change.
//   - The number of connections, their duration and their input are limited.
//   - The world file is replaced atomically: a crash leaves the old or the new one.
//   - The end of stdin does not stop the server.
//   - It uses only the standard library, so that thousands of servers start fast.
package arena
