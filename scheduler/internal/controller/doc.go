// Package controller keeps a model of the nodes in step with the view, asks
// package place where pending instances go, and commits what it says.
//
//	view ──batches──▶ inbox ──▶ model ──place──▶ lanes ──bulks──▶ etcd
//	                              ▲                ▲                │
//	                              │ shown          └──── answers ◀──┘
//	                              └──────────────────── view ◀──────┘
//
// One goroutine owns the model and decides; it never waits for etcd. What it has
// decided is charged at once, as an assumption:
//
//	queued ──▶ sent ──▶ made ──shown by the view──▶ over
//	   │         │        └──not there, though the view is past it──▶ released
//	   │         └──its part lost, or its shard──▶ released
//	   └──its node or intent changed──▶ released
//
// A lane is a node: one part of a bulk is under way on it at a time, which compares
// every intent and compares and renews the node's alloc key. So two schedulers can
// never give the same room twice, and nothing that was stopped meanwhile is placed.
// An instance with an assumption is left alone; a bulk whose answer was lost stays
// assumed until it is sure that it has happened or never will. Bulks carry the
// shards' fences, and nothing is decided from a view before the own claim.
//
// An instance that does not fit is parked with all of its kind, and one of them is
// looked at again when something changed that could help: a node, a cordon, a
// release. The timer is only a safety net.
package controller
