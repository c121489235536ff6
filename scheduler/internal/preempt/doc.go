// Package preempt decides who makes room for an instance that fits nowhere: the
// cheapest set of instances on one node without which it would fit. It is pure.
//
// # Rules
//
//   - A victim's group has a priority at least Gap below that of the one that gets
//     the room. It is not static, nobody plays on it, and it is not on its way out.
//   - The cheapest set has the fewest victims. Among sets of one size the victims
//     that cost most are compared first, then those that cost second most, and so on:
//     one costs more the higher its priority and, among equals, the older it is.
//   - No victim is superfluous: without any one of them in the set it would not fit.
//   - Whether it would fit is asked of whoever knows the nodes, all filters included.
//     Taking one more instance away never makes it unfit.
//
// The search is exact while it stays within a number of steps; past it the set
// is only minimal, not the cheapest.
//
// # No loop
//
// Pace lets one instance have one preemption at a time and waits a minute before the
// next. Together with the gap between priorities this ends: who is displaced never
// displaces who displaced it.
package preempt
