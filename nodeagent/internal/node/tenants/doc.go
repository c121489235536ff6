// Package tenants assigns the user and group ids that instances run as.
//
//	instance-uids: first ── static groups, by their numbers ──┬── instances that are not static ── last
//
// Invariants:
//
//   - An id belongs to one instance of the node, or to one static group of the fleet. The lower half of
//     the range is for static groups, so that a group that gets its number later never meets an instance.
//   - An instance keeps its id until it is forgotten. The journal stores the id, and so does the owner of
//     the instance's directory, in case that the entry is lost.
//   - An id is not used again while files of its former owner are in the directories of instances or in
//     shared directories of the host.
package tenants
