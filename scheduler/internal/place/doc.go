// Package place decides on which node and ports an instance runs: a pure
// function over a model of the nodes.
//
// A request goes through the filters, in order; each says of each node whether
// it may hold the instance. The nodes left are scored, the best one gets it, and
// the model is charged at once, so that many requests in a row never give the
// same room twice. When no node is left, Unfit says how many nodes each filter
// excluded and what would make the nearest of them fit.
//
// Invariants: no node is charged above its capacity; no port number is given
// twice on a node, TCP and UDP counted as one; the same model and requests give the
// same answer, ties being broken by a hash of instance and node.
package place
