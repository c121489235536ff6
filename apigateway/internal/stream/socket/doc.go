// Package socket has the common parts of the gateway's streams: limiting them, ending them on
// shutdown, and upgrading requests to WebSockets.
//
// Invariants:
//
//   - The number of concurrent streams is limited, and one user has at most half of them. Above the
//     limit a request gets 429, during shutdown 503.
//   - Close ends all streams and waits for them, so that clients reconnect to another replica.
//   - WebSocket clients get a close message on shutdown and are disconnected if they do not answer
//     in time.
//   - Writes and pings have a timeout. A client that does not read is disconnected.
package socket
