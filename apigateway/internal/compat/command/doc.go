// Package command interprets the commands of the Universe console, such as "instance stop lobby-1",
// and returns their output as lines of text.
//
//	line ─▶ words, arguments ─▶ the table of commands ─▶ ops ─▶ lines
//
// Invariants:
//
//   - The package does not know HTTP. A Session has the caller and receives the output. Only the terms of
//     the dialect come from package universe.
//   - A command needs the same permissions as the routes that do the same, checked for each command.
//   - Commands change the fleet only through ops, so they are validated and audited like API calls.
//     A changing command is also audited as it was typed.
//   - A command has ended when its output has. Nothing continues in the background except the fleet's
//     reconciliation.
//   - A command ends when its caller disconnects. The exception is the shutdown of a whole cluster, which
//     always completes, because half a shutdown is worse than none or a full one.
//   - Its output is limited to MaxLines.
package command
