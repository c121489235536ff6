// Package clusterops changes what belongs to the whole cluster: settings, quotas, networks and
// secrets.
package clusterops

import (
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/seal"
)

// Cluster changes what belongs to the whole cluster: settings, quotas, networks and secrets. It is safe for concurrent use.
type Cluster struct {
	*txn.Committer
	seal seal.Box
}

// New returns the operations on the whole cluster.
func New(c *txn.Committer, box seal.Box) *Cluster {
	return &Cluster{Committer: c, seal: box}
}
