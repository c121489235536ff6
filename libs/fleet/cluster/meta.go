package cluster

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Meta identifies the cluster and the schema of its keys.
type Meta struct {
	record.Rev
	Schema    int       `json:"schema"`
	ClusterID string    `json:"clusterId"`
	CreatedAt time.Time `json:"createdAt"`
}

// SecretFingerprint verifies that a secret is the cluster's without revealing it.
type SecretFingerprint struct {
	record.Rev
	Salt []byte `json:"salt"`
	// Hash is the argon2id hash of the secret with the salt.
	Hash []byte `json:"hash"`
}
