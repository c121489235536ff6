package auth

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// jwtKeyID names the signing key among the sealed keys.
	jwtKeyID    = "jwt"
	jwtKeyBytes = 32
)

// signingKey is the key all replicas sign with; the first one makes it.
func signingKey(ctx context.Context, c *store.Client, secret string, now time.Time) ([]byte, error) {
	box, err := newBox(secret, jwtKeyID)
	if err != nil {
		return nil, err
	}
	key := make([]byte, jwtKeyBytes)
	_, _ = rand.Read(key) // never fails
	fresh := fleet.SealedKey{ID: jwtKeyID, Sealed: box.seal(key), CreatedAt: now.UTC()}
	_, err = c.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(store.SealedKeyKey(jwtKeyID), fresh)}})
	if err != nil && !errs.Is(err, errs.AlreadyExists) {
		return nil, errs.Wrap("auth.signingKey", err)
	}
	sealed, err := store.Get(ctx, c, store.SealedKeyKey(jwtKeyID))
	if err != nil {
		return nil, errs.Wrap("auth.signingKey", err)
	}
	return box.open(sealed.Sealed)
}

// box seals one kind of key under the cluster secret: AES-256-GCM with a key
// derived for that kind alone.
type box struct {
	aead cipher.AEAD
	kind string
}

func newBox(secret, kind string) (box, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "orrery/pki/"+kind, 32)
	if err != nil {
		return box{}, errs.As(errs.Internal, "auth.newBox", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return box{}, errs.As(errs.Internal, "auth.newBox", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return box{}, errs.As(errs.Internal, "auth.newBox", err)
	}
	return box{aead: aead, kind: kind}, nil
}

func (b box) seal(plain []byte) []byte {
	nonce := make([]byte, b.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return b.aead.Seal(nonce, nonce, plain, []byte(b.kind))
}

func (b box) open(sealed []byte) ([]byte, error) {
	if n := b.aead.NonceSize(); len(sealed) > n {
		if plain, err := b.aead.Open(nil, sealed[:n], sealed[n:], []byte(b.kind)); err == nil {
			return plain, nil
		}
	}
	return nil, errs.Field("cluster.secret",
		"does not open this cluster's keys: give the secret the cluster was first started with")
}
