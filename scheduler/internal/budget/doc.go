// Package budget decides whether one more instance of a group may hold
// resources at all, wherever it would run: quotas and reservations. It is pure: a
// ledger of what is held, fed like the model of package place, and an answer with
// its explanation.
//
// # Rules
//
//   - A quota bounds what the instances it counts hold together: a group's own
//     quota those of the group, a tenant's those of all groups with its labels. A
//     part of a limit that is 0 bounds nothing. Where more is held than a limit
//     allows, because it was lowered, nothing is stopped and nothing new is placed.
//   - A reservation is what others leave free for the instances it counts. Unfilled
//     is what they do not hold of it yet. Whatever a placement takes beyond what is
//     reserved for its own group must leave, on all live and uncordoned nodes
//     together, as much free as the reservations of others are unfilled. Where more
//     is reserved than there is, whoever has a reservation comes first, and among
//     those the first.
//   - Memory, CPU and the number of instances are judged apart; a placement that
//     takes nothing of one is not judged by it. Instances are free without bound as
//     long as any usable node has no bound of its own.
//   - Reservations add up, also a group's and its tenant's.
//
// # Many schedulers
//
// Replicas decide at the same time from views of different age. Each placement
// therefore touches keys, as it touches its node's: two placements that could break
// a rule together touch a common one, so that one of them is refused and decides
// anew. Each quota has a key, and all reservations together have one: what must be left
// for many is compared in one place. A group's own quota needs none, since a group has
// one owner.
//
// What is free is a sum: that no single node has room for what is reserved is not
// this package's concern. It does not choose nodes, and stops nothing.
package budget
