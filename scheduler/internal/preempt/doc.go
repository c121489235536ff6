// Package preempt chooses the instances to evict for an instance that fits nowhere: the
// cheapest set on one node whose eviction makes the instance fit. It is pure.
//
// # Rules
//
//   - The group of a victim has a priority at least Gap below that of the new instance. A
//     victim is not static, has no players and is not already stopping.
//   - The cheapest set has the fewest victims. Sets of the same size are compared by their
//     most expensive victims, then by the second most expensive, and so on. A higher
//     priority costs more; among equals, the older instance does.
//   - Every victim is necessary: without it, the new instance would not fit.
//   - The caller decides with all filters whether the instance fits. Evicting one more
//     instance must never make it unfit.
//
// The search is exact up to a number of steps. Beyond that, the set is minimal but may not
// be the cheapest.
//
// # No loop
//
// Pace allows one preemption at a time per instance and waits a minute before the next.
// The priority gap ensures that an evicted instance never evicts the one that replaced it.
package preempt
