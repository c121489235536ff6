// Package confine restricts a command: it runs as another user, gains no privileges, has its own
// /tmp, reaches its directory below closed parents, and does not see processes of other users.
//
//	agent: For ──▶ Confinement ──▶ Start: a thread confines itself, and forks the command
//	                          └──▶ Apply: a program in a terminal confines itself, and execs the command
//
// Invariants:
//
//   - The wrapper of a run is confined like its command. No code that the instance's environment
//     names, such as LD_PRELOAD or BASH_ENV, ever runs as the agent's user.
//   - A command is confined completely or not run. For rejects what this host does not support.
//   - The agent's other threads keep their mounts and privileges: the confined thread ends after the
//     fork.
//   - A private /tmp is the run's own directory. It counts as the run's disk usage and is removed
//     with it.
package confine
