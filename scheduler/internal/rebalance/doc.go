// Package rebalance decides which instances to move so that nodes are used evenly:
// a bounded number at a time, of groups that allow it, and only instances whose end
// disturbs nobody. It is pure.
//
// # Rules
//
//   - A node's use is the larger of its reserved shares of memory and CPU. Nothing is
//     moved unless the fullest node with something to move is used more than the
//     emptiest usable node by Limits.Threshold.
//   - An instance moves from one node to an emptier one. Afterwards both are used less
//     than the fuller one was, and the gap between the two has closed by at least
//     Limits.Margin times the instance's own share.
//   - What was moved, or was to be moved, within Limits.Quiet is not moved again.
//   - At most Limits.Moves are under way at a time, in the whole fleet.
//   - Only an instance that is ready, without players, not static, and whose group
//     allows it is moved; whether it fits elsewhere is asked of whoever knows the nodes.
//
// # It ends
//
// Each move replaces the use of two nodes by two that are both below the larger of
// them: the uses of all nodes, sorted from the fullest down, become smaller at the first
// place where they differ. So no distribution ever comes back, and nothing is moved to
// and fro.
package rebalance
