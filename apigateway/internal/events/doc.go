// Package events tells clients what changes in the fleet, as it changes, and what
// they missed while they were away.
//
// An event's id is the etcd revision of the change, with "-<n>" when one revision
// holds several events. Translating a revision is a pure function of the store's
// content, so every gateway replica gives every event the same id, and a client
// resumes on any of them, after any restart, from the last id it saw.
//
//	view ──batch──▶ Translate ──▶ Log (a ring) ──▶ one cursor per client ──▶ SSE
//	etcd history ──Replay──▶ Translate ──▶ a page of older events ──┘
//
// Invariants:
//
//   - A client gets exactly the events after its position, in order, once. Where
//     that is impossible (history is compacted, the position is of another
//     cluster) it gets one RESYNC_REQUIRED instead and goes on from the present.
//   - Whole revisions enter the log, so ids never depend on timing or filters.
//   - A client is a cursor into the shared log, not a queue: a slow one costs
//     nobody anything, and is cut when it falls too far behind.
//   - What is heard is encoded once, outside the log's lock, and written to a client
//     together with all that waits for it. Clients are called in rounds (crowd.go), so
//     what many of them cost is bounded whatever happens in the fleet; who does not
//     want what came is not called.
//   - Reads of etcd's history are few at a time, whatever the number of clients;
//     what one client fetched widens the log for the others.
//   - Events that are not changes of state (node usage, players, what instances
//     say) have no id, are never replayed, and are dropped for a client that does
//     not keep up. Those that only one gateway hears of come by package relay.
package events
