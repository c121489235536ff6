// Package ping speaks the Minecraft server-list ping: the few packets by which a
// client's server list learns a server's version, players and message of the day.
// Both ends use it: the arena server to answer, tests and tools through Ping.
//
//	client                                server
//	  handshake (next: status) ─────────▶
//	  status request           ─────────▶
//	                           ◀───────── status response, a JSON document
//	  ping, 8 bytes            ─────────▶
//	                           ◀───────── pong, the same 8 bytes
//
// A packet is its length, its id and its fields; lengths and ids are VarInts: seven
// bits a byte, lowest first, at most five bytes.
//
// Invariants: nothing a peer sends makes a reader allocate more than the limit it was
// given, or panic; whatever does not parse is ErrMalformed.
//
// It does not speak the game itself: no login, no encryption, no compression.
package ping
