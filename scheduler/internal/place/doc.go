// Package place chooses the node and the ports on which an instance runs. It is a pure
// function over a model of the nodes.
//
// A request passes the filters in order; each filter decides whether a node may hold the
// instance. The model scores the remaining nodes and takes the best. It charges that node
// at once, so that consecutive requests never get the same resources. When no node
// remains, Unfit says how many nodes each filter excluded and what would make the nearest
// of them fit.
//
// Invariants:
//
//   - The model never charges a node above the capacity that it leaves for instances.
//   - A node gives out each port number once; TCP and UDP count as one.
//   - No plan causes a panic.
//   - The same model and the same requests give the same answers. The most free memory
//     breaks ties, then a hash of group and node.
//
// Cost: requests of one plan share a class, which parses the plan once and keeps a ranking
// of the nodes between requests. A request judges only the nodes that changed since the
// last request of its class. The first request of a plan and an explanation judge all
// nodes.
//
// The package reads no clock: the caller passes the time to Expire, which drops old
// failures.
package place
