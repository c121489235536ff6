package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Session is the liveness of a service replica: it exists while its lease is alive.
type Session struct {
	record.Rev
	Service string `json:"service"`
	Replica string `json:"replica"`
	// URL is the base URL of the replica's HTTP API. It is empty for a replica without an API.
	URL string `json:"url,omitempty"`
	// PeerURL is the base URL at which a gateway serves other gateways, if that is not URL.
	PeerURL string `json:"peerUrl,omitempty"`
	// Renews reports whether a gateway renews the certificates of services, at PeerURL.
	Renews bool `json:"renews,omitempty"`
	// NodesURL is the base URL at which a gateway or an enforcer serves nodes; empty if it does not.
	NodesURL string `json:"nodesUrl,omitempty"`
	// SealKeys are the IDs of the key-encryption keys that the replica has.
	SealKeys  []string  `json:"sealKeys,omitempty"`
	Version   string    `json:"version,omitempty"`
	StartedAt time.Time `json:"startedAt"`
}

// AsksForSecrets is in fleet.Node.SealKeys of an agent that asks gateways for secrets and opens none itself.
const AsksForSecrets = "gateway"

// Shard is the ownership of a shard by a service replica. Its create-revision is the fencing
// token.
type Shard struct {
	record.Rev
	Service string `json:"service"`
	Replica string `json:"replica"`
}
