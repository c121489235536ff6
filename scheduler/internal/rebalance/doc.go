// Package rebalance decides which instances to move so that the nodes are used evenly. It
// moves a bounded number at a time, only from groups that allow it, and only instances
// without players. It is pure.
//
// # Rules
//
//   - A node's use is the larger of its reserved shares of memory and CPU. Nothing moves
//     unless the use of the fullest node with movable instances exceeds that of the
//     emptiest usable node by more than Limits.Threshold.
//   - An instance moves to an emptier node. Afterwards the use of both nodes is below the
//     previous use of the fuller one, and the gap between them is smaller by at least
//     Limits.Margin times the instance's own share.
//   - An instance does not move again within Limits.Quiet of its last move or attempt.
//   - At most Limits.Moves are in progress at a time in the whole fleet.
//   - Only instances move that are ready, not static and without players, and whose group
//     allows it. The caller decides whether an instance fits on another node.
//
// # Termination
//
// A move replaces the use of two nodes by two values that are both below the larger of the
// old ones. The list of all uses, sorted from the fullest down, therefore becomes
// lexicographically smaller with each move. No distribution ever returns, and no instance
// moves back and forth forever.
package rebalance
