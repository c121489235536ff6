// Package controller keeps a model of the nodes in step with the view, asks
// package place where pending instances go, and commits what it says.
//
//	view ──batches──▶ inbox ──▶ model ──place──▶ transaction ──commit──▶ etcd
//	                              ▲                                       │
//	                              └────────── its own commit ◀────────────┘
//
// One goroutine owns the model and plans. It plans only from a model at or past
// the revision of its ownership and of its own last commit; when that commit's
// answer was lost, it first makes sure that it has happened or never will. Each transaction
// carries the shards' fences, compares every intent and the alloc key of every
// node it touches: two schedulers can never give the same room twice, and nothing
// that was stopped meanwhile is placed.
//
// An instance that does not fit is looked at again when something changed that
// could help: a node, a cordon, a release. The timer is only a safety net.
package controller
