// Package ping implements the Minecraft server-list ping, with which a client's server list
// learns a server's version, players and message of the day. The arena server uses it to
// answer; tests and tools use it through Ping.
//
//	client                                server
//	handshake (next: status) ─────────▶
//	status request           ─────────▶
//	                         ◀─────────   status response, a JSON document
//	ping, 8 bytes            ─────────▶
//	                         ◀─────────   pong, the same 8 bytes
//
// A packet is its length, its ID and its fields. Lengths and IDs are VarInts: seven bits a
// byte, lowest first, at most five bytes.
//
// Invariants: no input makes a reader panic or allocate more than the limit it was given.
// Input that does not parse causes ErrMalformed.
//
// The package does not implement the game: no login, no encryption, no compression.
package ping
