// Package commandapi serves the command console of the Universe API: one command per request, or one per
// message over a WebSocket.
//
//	POST /api/commands/execute ─┐
//	POST …/nodes/<id>/command ──┼─▶ command.Interpreter ─▶ lines ─▶ the response
//	WS   /api/console ──────────┘                                   or a message each
//
// Invariants:
//
//   - A response has the complete output of its command.
//   - The client of a WebSocket is authorized again for each command. The WebSocket closes when the
//     token that opened it is no longer valid.
//   - Callers who may run only the commands open to all cannot open a WebSocket.
//   - Completion is answered at once, even while a command runs, and runs nothing.
//   - Commands of one WebSocket run one after the other, with a short queue. A client that reads too
//     slowly is disconnected with a reason.
package commandapi
