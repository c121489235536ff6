// Package console shows people the consoles of instances as they are written, and
// takes what they type: as server-sent events, over a WebSocket both ways, and as the
// older dialect's live-log.
//
//	agent ──frames──▶ feed ──▶ sink: SSE | attach | live-log ──▶ client
//	agent ◀──one line────────────── attach ◀───────────────────── client
//
// Invariants:
//
//   - The place in a console is a byte offset of the log on the node. A client that
//     comes back with the last id it saw gets exactly what follows, whichever agent
//     and gateway serve it meanwhile.
//   - The gateway buffers one frame per client, no more: one that does not read holds
//     its agent's stream up, which then leaves out what cannot be followed and says so.
//   - An agent or a node that is away ends no stream: it goes on when it is back.
//   - A stream ends by itself only with its instance, and says how that ended.
package console
