// Package console streams the consoles of instances to clients, as server-sent events, over a WebSocket and as
// the live-log of the Universe API. WebSocket clients can also type.
//
//	agent ──frames──▶ feed ──▶ sink: SSE | attach | live-log ──▶ client
//	agent ◀──one line────────────── attach ◀───────────────────── client
//
// Invariants:
//
//   - A position in a console is a byte offset of the log on the node. A client that reconnects
//     with the last ID it received resumes exactly there, on any gateway and agent.
//   - The gateway buffers one frame per client. A slow client slows its agent's stream down; the
//     agent then skips output and reports that.
//   - A stream survives the absence of its agent or node and continues when it is back.
//   - A stream ends by itself only when its instance ends, and reports how the instance ended.
package console
