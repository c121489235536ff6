// Package events streams changes of the fleet to clients, and the events that they missed while
// they were disconnected.
//
// An event's ID is the etcd revision of the change, with "-<n>" if one revision has several events.
// Translating a revision is a pure function of the store's content, so every gateway replica gives
// an event the same ID. A client can resume on any replica with the last ID it received.
//
//	view ──batch──▶ Translate ──▶ Log (a ring) ──▶ one cursor per client ──▶ SSE
//	etcd history ──Replay──▶ Translate ──▶ a page of older events ──┘
//
// Invariants:
//
//   - A client gets exactly the events after its position, once and in order. If that is impossible
//     (history is compacted, or the position is of another cluster), it gets one RESYNC_REQUIRED
//     and continues from the present.
//   - Whole revisions enter the log, so IDs never depend on timing or filters.
//   - A client is a cursor into the shared log, not a queue. A slow client does not affect the
//     others and is disconnected when it falls too far behind.
//   - An event is encoded once, outside the log's lock, and written together with all other pending
//     events of the client. Clients are woken in rounds (broadcaster.go), which limits the cost of many
//     clients. A client is not woken for events that it does not want.
//   - Few reads of etcd's history run at a time, whatever the number of clients. Events that one
//     client fetched extend the log for the others.
//   - Live events, which are not state changes (node usage, players, custom events of instances),
//     have no ID, are not replayed, and are dropped for a client that does not keep up. Package
//     relay brings those of other gateways.
package events
