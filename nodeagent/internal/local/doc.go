// Package local is the agent's break-glass interface: a unix socket in its data
// directory through which somebody on the host lists, reads, types into and stops
// instances while etcd, the gateway or both are away.
//
// Invariants:
//   - It asks nobody: every answer comes from the agent's own memory and files.
//   - The socket's permissions are the authentication: only the agent's user and
//     root can open it. Whoever changes something is named in the log, and in the
//     instance's status, by the credentials the kernel knows.
//   - A stop is journalled before it is answered, so it outlives the agent.
//   - The socket never has wider permissions, not even for a moment, and a dead
//     agent's is replaced only under the lock on the data directory.
//
// It starts nothing and edits nothing: that stays with the control plane.
package local
