package auth

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// jwtKeyID names the signing key among the sealed keys.
	jwtKeyID    = "jwt"
	jwtKeyBytes = 32
)

// signingKey is the key all replicas sign with; the first one makes it.
func signingKey(ctx context.Context, c *store.Client, secret string, now time.Time) ([]byte, error) {
	box, err := seal.NewBox(secret, jwtKeyID)
	if err != nil {
		return nil, err
	}
	key := make([]byte, jwtKeyBytes)
	_, _ = rand.Read(key) // never fails
	fresh := fleet.SealedKey{ID: jwtKeyID, Sealed: box.Seal(key), CreatedAt: now.UTC()}
	_, err = c.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(store.SealedKeyKey(jwtKeyID), fresh)}})
	if err != nil && !errs.Is(err, errs.AlreadyExists) {
		return nil, errs.Wrap("auth.signingKey", err)
	}
	sealed, err := store.Get(ctx, c, store.SealedKeyKey(jwtKeyID))
	if err != nil {
		return nil, errs.Wrap("auth.signingKey", err)
	}
	return box.Open(sealed.Sealed)
}
