// Package pane is how a command gets into a session of a terminal multiplexer without
// anybody between being told its environment: the session runs a small program that
// asks the agent over a socket what to become, and becomes it.
//
//	agent: Listen ──▶ multiplexer starts the program ──▶ Await ──▶ Become
//	                  program: dial, wait ◀── directory, arguments, environment, lock ── exec
//
// Invariants:
//
//   - What the multiplexer's server inherits, and what its clients show in their
//     arguments, is nothing of any instance's.
//   - A program that waits ends when the agent does: a start half done leaves nothing.
package pane
