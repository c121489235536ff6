// Package plan decides what a group needs: which instances to start, restart, stop and
// delete, which orders their nodes lack, and when to plan again. It is pure: it takes a
// group's records and the time, and returns actions with reasons.
//
// # Rules
//
//   - The minimum is a lower bound for living instances of any origin. It is also the
//     target for the enforcer's own instances: those that it started itself or that
//     existed at the last explicit scale. It stops surplus own instances, youngest first,
//     as soon as they have no players. It never stops instances started by hand for that.
//   - In a DYNAMIC group that is not static and has a maximum, the load may need more instances than
//     the minimum, and policies may ask for more; see package scale. The target is then the number
//     that was decided last. The enforcer stops no surplus that the load or a policy needs.
//   - A group that is neither static nor MANUAL may keep warm instances in addition. They take no
//     players, and no other rule sees them. When the group needs another instance, a warm one that
//     is ready becomes an ordinary one. Warm instances of an earlier deployment, or on a draining
//     node, are stopped.
//   - The maximum is an upper bound for all living instances. The enforcer stops what
//     exceeds it, youngest first.
//   - Instances that ended without a request are healed. The minimum covers the enforcer's
//     own instances. An instance started by hand gets a replacement unless onCrash is
//     stop. onCrash does not apply to ends that the platform causes, such as a reboot of
//     the node. The minimum applies with every value of onCrash. With onCrash restart, the agent
//     restarts a crashed instance in place; when it gives up, the instance is healed.
//   - A command that does not exist or cannot be executed is not tried again until the
//     group, a group it inherits from or one of its templates changes, or until its
//     crashes are reset.
//   - Instances on a lost node are reported as lost. The group's policy decides whether
//     they are replaced, waited for, stopped or, in static groups, moved. When the node
//     returns, either the original or its replacement is stopped, but never one with
//     players while the other has none. During a mass outage none of this happens.
//   - Instances that the scheduler wants evicted are stopped if still possible: the
//     generation is the same, the group is not static, and there are no players. A
//     preempted instance is healed and then waits for resources itself. A moved instance
//     is stopped only once its replacement is ready, so that the number never drops.
//     Neither counts as a crash. Nothing is preempted for an instance whose group may no
//     longer do so.
//   - An instance that waits for a node is composed again when its group's requirements
//     for nodes change. A placed instance stays as it is.
//   - A static group restarts its existing instances, in order of ordinal, before it
//     creates new ones.
//   - A frozen instance is left alone. It is neither trimmed nor evicted, and once it has
//     ended it is neither restarted nor replaced nor deleted. It still counts in its
//     group. A requested restart and the deletion of its group still happen.
//   - A retiring instance takes no new players. Unless its group is static, it no longer counts, so
//     that others start first. It is stopped once it is empty and as many other instances are ready
//     as the group needs, or with its players at its deadline. It is neither healed nor evicted.
//   - On a draining node, instances retire or are stopped as package drain decides. Dynamic ones no
//     longer count, so that others start first. Static ones keep their place, and start again when
//     the drain is ended.
//   - A group starts nothing while a group that it depends on has no ONLINE instance.
//   - A group in maintenance, alone or with all others, starts nothing. A group with MANUAL
//     scaling is neither scaled nor healed. Stops, orders, requested restarts and the
//     maximum work in both.
//
// # Crashes
//
// The first crash is healed at once, later ones after a delay that doubles. Three crashes
// within the window pause the group: nothing starts until the pause ends.
//
//	calm ──3 crashes in 5 min──▶ paused 60 s ──over──▶ watched ──quiet time──▶ calm
//	                               ▲  (2×, to 1 h)         │
//	                               └──3 crashes in 5 min───┘
//
// Crashes before or during a pause do not count after it. Crashes of an older revision of
// the group's spec never count. A change of the spec ends the pause, because it may be the
// fix, but keeps the level. Lost nodes, rebooted nodes and stopped agents are not crashes.
//
// # Invariants
//
//   - The same records and time give the same actions in any order of the records.
//   - At most one action concerns an instance. After all actions are performed, planning
//     again returns none of them.
//   - After the actions, no more instances live than the maximum allows, not counting
//     frozen ones. The number of stops never exceeds the surplus.
//   - The wake time is after now. It is when something becomes due, not a polling
//     interval.
//
// The package does not place instances, compose plans for processes or know transactions.
package plan
