// Package socket has what the streams of the gateway have in common: how many there may be
// and how they end with it, and how a request becomes a WebSocket.
//
// Invariants:
//
//   - There are at most so many at a time, no more than half of them of one user; one more is
//     refused with 429, and one that comes while the gateway ends with 503.
//   - Close ends all and waits for them: a client that comes back goes elsewhere.
//   - A client of a WebSocket is told that the gateway ends, and cut when it does not answer
//     that in time.
//   - No write and no ping waits longer than the socket's timeout; a client that takes
//     nothing for so long is cut.
package socket
