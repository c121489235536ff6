// Package shell gives people the console of the older dialect: one command a request, or
// one a message over a WebSocket.
//
//	POST /api/commands/execute ─┐
//	POST …/nodes/<id>/command ──┼─▶ command.Interpreter ─▶ lines ─▶ the answer
//	WS   /api/console ──────────┘                                   or a message each
//
// Invariants:
//
//   - An answer holds all its command has said; who asks waits for it.
//   - Who opened a WebSocket is judged anew at each command: when the token it was opened
//     with is no longer good, it closes.
//   - Who may run no command but those of everybody opens none.
//   - What completes a line is answered at once, whatever runs, and runs nothing.
//   - Commands of one WebSocket run one after the other, and few wait. A client that is
//     slow to take what they say is cut, and told why as far as it still reads.
package shell
