// Package place decides on which node and ports an instance runs: a pure
// function over a model of the nodes.
//
// A request goes through the filters, in order; each says of each node whether
// it may hold the instance. The nodes left are scored, the best one gets it, and
// the model is charged at once, so that many requests in a row never give the
// same room twice. When no node is left, Unfit says how many nodes each filter
// excluded and what would make the nearest of them fit.
//
// Invariants: no node is charged above what its capacity leaves for instances; no
// port number is given twice on a node, TCP and UDP counted as one; no plan makes it
// panic; the same model and requests give the same answer, ties going to the most free
// memory and then to a hash of group and node.
//
// Cost: requests of one plan share a class, which reads the plan once and keeps a
// ranking of the nodes from one request to the next. A request costs the judgement of
// the nodes that changed since the last one of its class; the first of a plan and an
// explanation cost that of all nodes.
//
// It does not know the time: failures that age are forgotten when it is told to.
package place
