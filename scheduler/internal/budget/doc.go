// Package budget decides whether one more instance of a group may hold resources at all,
// on whichever node. It implements quotas and reservations. It is pure: a ledger of what
// instances hold, fed by the same events as the model of package place, that answers with
// an explanation.
//
// # Rules
//
//   - A quota limits what its instances hold together. A group's own quota counts the
//     instances of the group; a tenant's quota counts those of all groups with its labels.
//     A part of a limit that is 0 limits nothing. When a limit is lowered below what is
//     held, nothing is stopped, but nothing new is placed.
//   - A reservation is capacity that others must leave free for its instances. Its
//     unfilled part is what these do not hold of it yet. A placement may use the unfilled
//     reservation of its own group. For anything beyond that, the live and uncordoned
//     nodes together must keep as much free as the reservations of others are unfilled.
//     When reservations exceed the capacity, groups with a reservation go first, in order
//     of arrival.
//   - Memory, CPU and the number of instances are checked separately, and only when the
//     placement needs them. The number of instances is unlimited while any usable node
//     has no limit.
//   - Reservations add up, including those of a group and its tenant.
//
// # Several schedulers
//
// Replicas decide concurrently from views of different age. Each placement therefore
// touches records, as it touches the record of its node. Two placements that could break a
// rule together touch a common record, so that etcd refuses one of them and its replica
// decides again. Each quota has a record, and all reservations share one. A group's own
// quota needs none, because only one replica owns the group.
//
// Free capacity is a sum over all nodes. The package does not check whether a single node
// could hold what is reserved. It chooses no nodes and stops no instances.
package budget
