// Package answer answers questions about placement from a facts.Moment: why an
// instance runs where it does or waits, and what would happen in a given case.
//
// It runs the same code as the scheduler on a copy of the model. An explanation of a
// waiting instance is therefore what the scheduler would write at that revision. A
// simulated placement is the one that would follow if nothing else changed.
//
// After a drain or the loss of a node, the enforcer decides which instances are replaced at
// all. This package applies the same policies from package fleet. It mentions in a note
// what depends on the enforcer's settings or on time.
package answer
