package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"

	"golang.org/x/crypto/argon2"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// The cost of a fingerprint: OWASP's second recommended setting for argon2id. Each program pays it
// once at its start; an attacker pays it for each guess.
const (
	fingerprintMemoryKiB = 19 * 1024
	fingerprintTime      = 2
	fingerprintThreads   = 1
	fingerprintBytes     = 32
	saltBytes            = 16
)

// sealedKind is a kind of key that every cluster with a gateway stores, sealed with its secret.
const sealedKind = "jwt"

// hashSecret returns the hash of a secret that a cluster stores with the salt.
func hashSecret(secret string, salt []byte) []byte {
	return argon2.IDKey([]byte(secret), salt, fingerprintTime, fingerprintMemoryKiB, fingerprintThreads, fingerprintBytes)
}

// checkSecret compares this client's secret with the cluster's stored fingerprint. The error is
// Conflict for the field cluster.secret if they differ.
func (c *Client) checkSecret(ctx context.Context, meta cluster.Meta) error {
	if c.secret == "" {
		return nil
	}
	kept, err := Get(ctx, c, keys.SecretFingerprint())
	if errs.Is(err, errs.NotFound) {
		kept, err = c.keepFingerprint(ctx, meta)
	}
	if err != nil {
		return err
	}
	if known := c.fingerprint.Load(); known != nil && bytes.Equal(known.Hash, kept.Hash) && bytes.Equal(known.Salt, kept.Salt) {
		return nil
	}
	if subtle.ConstantTimeCompare(kept.Hash, hashSecret(c.secret, kept.Salt)) != 1 {
		return anotherSecret(meta)
	}
	c.fingerprint.Store(&kept)
	return nil
}

// keepFingerprint stores the fingerprint of this client's secret, unless another client was
// faster, and returns the stored one. In a cluster of an earlier release the secret must open an
// existing sealed key.
func (c *Client) keepFingerprint(ctx context.Context, meta cluster.Meta) (kept cluster.SecretFingerprint, err error) {
	sealed, err := Get(ctx, c, keys.SealedKey(sealedKind))
	switch {
	case errs.Is(err, errs.NotFound):
		sealed = account.SealedKey{}
	case err != nil:
		return kept, err
	default:
		if _, err := seal.NewBox(c.secret, sealedKind).Open(sealed.Sealed); err != nil && seal.VersionOf(sealed.Sealed) == "" {
			return kept, anotherSecret(meta)
		}
	}
	fresh := cluster.SecretFingerprint{Salt: make([]byte, saltBytes)}
	_, _ = rand.Read(fresh.Salt) // never fails
	fresh.Hash = hashSecret(c.secret, fresh.Salt)
	_, err = c.commit(ctx, Txn{
		Guards: []Guard{Unchanged(keys.Meta(), meta.ModRev), Unchanged(keys.SealedKey(sealedKind), sealed.ModRev)},
		Writes: []Write{Create(keys.SecretFingerprint(), fresh)},
	}, "")
	switch {
	case err == nil:
		return fresh, nil
	case errs.Is(err, errs.AlreadyExists):
		return Get(ctx, c, keys.SecretFingerprint())
	case errs.Is(err, errs.Conflict):
		return kept, errs.New(errs.Unavailable, "cluster %s changed during the join: retry", meta.ClusterID)
	}
	return kept, err
}

func anotherSecret(meta cluster.Meta) error {
	return &errs.Error{Kind: errs.Conflict, Field: "cluster.secret", Message: fmt.Sprintf(
		"cluster.secret differs from the secret of cluster %s: use the secret of the cluster's other services, or check etcd.endpoints if it belongs to another cluster", meta.ClusterID)}
}
