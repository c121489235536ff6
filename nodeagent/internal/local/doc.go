// Package local is the agent's local API: a unix socket in its data directory through which
// operators on the host list, read, type into and stop instances while etcd, the gateway or
// both are unavailable.
//
// Invariants:
//   - It depends on no other service: every answer comes from the agent's own memory and files.
//   - The socket's permissions are the authentication: only the agent's user and root can
//     open it. The log and the instance's status name the user who changed something, by
//     the credentials that the kernel reports.
//   - A stop is journalled before it is answered, so it survives the agent.
//   - The socket never has wider permissions, not even briefly. The socket of a dead agent is
//     replaced only under the lock on the data directory.
//
// It does not start or configure instances: that requires the control plane.
package local
