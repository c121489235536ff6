package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"

	"golang.org/x/crypto/argon2"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/seal"
)

// The cost of a fingerprint: OWASP's second recommended setting for argon2id. Each
// program pays it once at its start, and whoever guesses secrets pays it for each guess.
const (
	fingerprintMemoryKiB = 19 * 1024
	fingerprintTime      = 2
	fingerprintThreads   = 1
	fingerprintBytes     = 32
	saltBytes            = 16
)

// sealedKind is a kind of key that every cluster with a gateway holds, sealed under its secret.
const sealedKind = "jwt"

// hashSecret is what a cluster keeps of its secret, with the salt.
func hashSecret(secret string, salt []byte) []byte {
	return argon2.IDKey([]byte(secret), salt, fingerprintTime, fingerprintMemoryKiB, fingerprintThreads, fingerprintBytes)
}

// checkSecret compares this client's secret with the fingerprint that the cluster keeps.
// Conflict naming cluster.secret when the secret is another.
func (c *Client) checkSecret(ctx context.Context, meta fleet.Meta) error {
	if c.secret == "" {
		return nil
	}
	kept, err := Get(ctx, c, SecretFingerprintKey())
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

// keepFingerprint writes the fingerprint of this client's secret, unless another client
// does so first, and returns the one that is kept. In a cluster of an earlier release the
// secret must open a key that was sealed under it.
func (c *Client) keepFingerprint(ctx context.Context, meta fleet.Meta) (kept fleet.SecretFingerprint, err error) {
	sealed, err := Get(ctx, c, SealedKeyKey(sealedKind))
	switch {
	case errs.Is(err, errs.NotFound):
		sealed = fleet.SealedKey{}
	case err != nil:
		return kept, err
	default:
		box, err := seal.NewBox(c.secret, sealedKind)
		if err != nil {
			return kept, err
		}
		if _, err := box.Open(sealed.Sealed); err != nil {
			return kept, anotherSecret(meta)
		}
	}
	fresh := fleet.SecretFingerprint{Salt: make([]byte, saltBytes)}
	_, _ = rand.Read(fresh.Salt) // never fails
	fresh.Hash = hashSecret(c.secret, fresh.Salt)
	_, err = c.commit(ctx, Txn{
		Guards: []Guard{Unchanged(MetaKey(), meta.ModRev), Unchanged(SealedKeyKey(sealedKind), sealed.ModRev)},
		Writes: []Write{Create(SecretFingerprintKey(), fresh)},
	}, "")
	switch {
	case err == nil:
		return fresh, nil
	case errs.Is(err, errs.AlreadyExists):
		return Get(ctx, c, SecretFingerprintKey())
	case errs.Is(err, errs.Conflict):
		return kept, errs.New(errs.Unavailable, "cluster %s changed while it was joined", meta.ClusterID)
	}
	return kept, err
}

func anotherSecret(meta fleet.Meta) error {
	return &errs.Error{Kind: errs.Conflict, Field: "cluster.secret", Message: fmt.Sprintf(
		"cluster.secret differs from the secret of cluster %s: give this program the secret that the other services of the cluster have, or check etcd.endpoints if it belongs to another cluster", meta.ClusterID)}
}
