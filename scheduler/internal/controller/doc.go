// Package controller keeps a model of the nodes in step with the view, lets package place
// choose nodes for pending instances, and commits the placements.
//
//	view ──batches──▶ inbox ──▶ model ──place──▶ node queues ──bulks──▶ etcd
//	                              ▲                ▲                      │
//	                              │ shown          └─────── answers ◀─────┘
//	                              └─────────────────────── view ◀─────────┘
//
// One goroutine owns the model and decides; it never waits for etcd. It charges each
// decision to the model at once, as an assumption:
//
//	queued ──▶ sent ──▶ committed ──shown by the view──▶ ended
//	   │         │        └──absent although the view has reached it──▶ released
//	   │         └──comparison or shard lost──▶ released
//	   └──node or intent changed──▶ released
//
// Each node has a queue. Only one part of a bulk is in progress per node. The
// part compares every intent, and compares and updates the node's alloc key. So two
// schedulers never give away the same resources twice, and an instance that was stopped
// meanwhile is not placed. The controller leaves an instance alone while it has an
// assumption. When the answer to a bulk is lost, its placements stay assumed until it is
// certain that the bulk happened or never will. Bulks carry the fences of the shards. The
// controller decides nothing from a view that is older than its claim.
//
// An instance that does not fit is parked in a class with others of its kind. The
// controller tries one of them again when a change may help: a node, a cordon, a release.
// The timer is only a safety net.
package controller
