// Package confine restricts a command: it runs as another user, gains no privileges, and has
// its own /tmp.
//
//	agent: Plan, EnvironFile ──▶ the wrapper runs the program ──▶ Main: confines itself, execs the command
//
// Invariants:
//
//   - The command's environment takes effect only after the change of user. Main itself runs
//     without it, because the dynamic linker and shells execute code that variables name.
//   - A command is confined completely or not run. Plan rejects what this host does not support;
//     Main exits if a step fails.
//   - The process keeps its id and its control groups.
//   - A private /tmp is the run's own directory. It counts as the run's disk usage and is removed
//     with it.
package confine
