// Package seal keeps secrets in the store unreadable for whoever has only the
// store: sealed under the cluster secret, AES-256-GCM with a key derived for one
// kind of secret alone.
//
// It protects what stands in etcd and in its backups, not from a service that has
// the cluster secret.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"

	"github.com/orreryhq/orrery/libs/errs"
)

// Box seals and opens one kind of secret. It is safe for concurrent use.
type Box struct {
	aead cipher.AEAD
	kind string
}

// NewBox derives the key of a kind from the cluster secret. What is sealed as one
// kind does not open as another.
func NewBox(secret, kind string) (Box, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "orrery/pki/"+kind, 32)
	if err != nil {
		return Box{}, errs.As(errs.Internal, "seal.NewBox", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return Box{}, errs.As(errs.Internal, "seal.NewBox", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return Box{}, errs.As(errs.Internal, "seal.NewBox", err)
	}
	return Box{aead: aead, kind: kind}, nil
}

// About is a box whose content opens as that of the same subject alone, so that what is
// sealed about one cannot be put in the place of another.
func (b Box) About(subject string) Box {
	b.kind += "\x00" + subject
	return b
}

// Seal makes plain unreadable. Twice the same gives two results.
func (b Box) Seal(plain []byte) []byte {
	nonce := make([]byte, b.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return b.aead.Seal(nonce, nonce, plain, []byte(b.kind))
}

// Open gives back what was sealed. Invalid, naming cluster.secret, when it was sealed
// under another secret or as another kind, or was changed.
func (b Box) Open(sealed []byte) ([]byte, error) {
	if n := b.aead.NonceSize(); len(sealed) > n {
		if plain, err := b.aead.Open(nil, sealed[:n], sealed[n:], []byte(b.kind)); err == nil {
			return plain, nil
		}
	}
	return nil, errs.Field("cluster.secret",
		"does not open this cluster's keys: give the secret the cluster was first started with")
}
