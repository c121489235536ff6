// Package controller carries out what package plan decides. The view reports which groups
// have changed. The controller plans each of them and commits the actions as fenced transactions.
//
//	view ──changed groups──▶ queue ──▶ plan.Group ──▶ transactions ──▶ etcd
//	  ▲                                                                  │
//	  └───────────────── waits until the view has the commit ◀───────────┘
//
// Invariants:
//
//   - A group is planned only while its shard is owned, and only from a snapshot that is
//     not older than the ownership. Every transaction compares the ownership.
//   - After a commit or a lost comparison, a group is planned again only from a snapshot
//     that includes the winning commit.
//   - Starts and stops also compare the group's record. Orders compare the intent and the
//     placement. So nothing is done on the basis of a changed record.
//   - Between passes the controller remembers only since when nodes have no session, see
//     outages, when records were written, see stamps, and when instances lost their last
//     player, see empties. Losing any of them is safe: waits start again.
package controller
