// Package plan decides what a group needs: which instances to make, to make
// again, to stop and to forget, which orders their nodes lack, and when to look
// again. It is pure: a group's records and the time in, actions with reasons out.
//
// # Rules
//
//   - The minimum is a floor over living instances of any origin, and the target
//     for those the enforcer made itself (or that existed at the last explicit
//     scale): the ones in excess are stopped, youngest first, as soon as they have
//     no players. What was started by hand is never trimmed by it.
//   - The maximum is a bound over all living instances: what exceeds it is
//     stopped, youngest first.
//   - What ended unasked is healed: an instance the enforcer made, by the minimum;
//     one started by hand, by a replacement of its own unless onCrash is stop. onCrash says nothing
//     about ends that the platform causes, such as a reboot of the node: they are healed.
//     The minimum holds whatever onCrash says: stop concerns what is beyond it.
//     With onCrash restart the agent starts a crashed instance again in place;
//     what it reports as ended it gave up, and that is healed like any other.
//   - A command that does not exist, or cannot be executed, is not tried again before the
//     group, what it inherits or one of its templates changes, or its crashes are reset.
//   - What is on a lost node is said to be, and replaced, waited for, stopped or, in
//     static groups, moved, as the group's policy has it. When the node returns,
//     one of an original and whoever has its place by now is stopped, never one with
//     players while the other has none. While most of the fleet is lost nothing of this happens.
//   - What the scheduler asks to be evicted is stopped, if that is still possible: the
//     same generation, not static, without players. What made room for another is
//     healed, and so waits for room itself; for what is moved another is started
//     first, and it is stopped once that one is ready, so that the number never
//     drops. Neither is a crash. Nobody makes room for an instance whose group may not
//     displace it any more.
//   - What waits for a node is made anew when its group asks something else of nodes;
//     what was placed stays as it was made.
//   - Static groups come back as the same instances, in order of ordinal, before
//     new ones are made.
//   - A frozen instance is left as it is: it is not stopped as one too many, nor evicted,
//     and once it has ended it is neither started again nor replaced nor forgotten. It counts
//     in its group meanwhile. A restart that somebody asked for, and the deletion of
//     its group, happen all the same.
//   - A group in maintenance starts nothing, one scaled MANUAL is neither scaled
//     nor healed; stops, orders, restarts somebody asked for, and the maximum
//     work in both.
//
// # Crashes
//
// The first crash is healed at once, later ones after a delay that doubles. Three
// within the window pause the group: until the pause ends nothing is started.
//
//	calm ──3 crashes in 5 min──▶ paused 60 s ──over──▶ watched ──quiet time──▶ calm
//	                               ▲  (2×, to 1 h)         │
//	                               └──3 crashes in 5 min───┘
//
// Crashes before or during a pause do not count again after it, and those of an older
// revision of the group's spec not at all. A change of the
// group's spec ends the pause, since it may be the cure, but keeps the level.
// Lost and rebooted nodes and agents told to stop are no crashes.
//
// # Invariants
//
//   - The same records and time give the same actions, whatever the order of the records.
//   - At most one action concerns an instance. Performing all actions and planning
//     again gives none of them again.
//   - Never more living instances than the maximum, frozen ones aside, and never more stops than the excess.
//   - The wake time is after now. It is when something becomes due, not a poll.
//
// It does not place, does not compose plans for processes, and knows nothing of transactions.
package plan
