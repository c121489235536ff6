// Package pane starts a command in a session of a terminal multiplexer, or in a container, without
// passing the command's environment through it. The session runs a small program that asks
// the agent over a socket what to execute, and executes it.
//
//	agent: Listen ──▶ multiplexer starts the program ──▶ Accept ──▶ Run
//	                  program: dial, wait ◀── directory, arguments, environment, lock ── exec
//
// Invariants:
//
//   - The multiplexer's server and its command lines contain nothing of an instance.
//   - A waiting program ends when the agent does, so a half-done start leaves no process.
package pane
