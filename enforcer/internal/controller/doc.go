// Package controller carries out what package plan decides: it hears from the
// view which groups changed, plans them one at a time, and commits the actions
// as fenced transactions.
//
//	view ──changed groups──▶ queue ──▶ plan.Group ──▶ transactions ──▶ etcd
//	  ▲                                                                  │
//	  └───────────────── waits until the view has the commit ◀───────────┘
//
// Invariants:
//
//   - A group is planned only while its shard is owned, and only from a snapshot
//     at or past the ownership; every transaction compares the ownership.
//   - After a commit, or a lost comparison, a group is planned again only from a
//     snapshot that has what was committed.
//   - Starts and stops also compare the group's record, orders the intent and the
//     placement they are made for: nothing is done on behalf of what has changed.
//   - Nothing is remembered between passes but since when nodes have no session, see
//     outages. All may be lost: forgetting that only makes patience start anew.
package controller
