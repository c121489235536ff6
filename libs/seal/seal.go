// Package seal encrypts secrets before they are stored, with AES-256-GCM and a key derived from
// the cluster secret for each kind of secret.
//
// It protects data in etcd and its backups. It does not protect against services that have the
// cluster secret.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"

	"github.com/orreryhq/orrery/libs/errs"
)

// Box encrypts and decrypts one kind of secret. It is safe for concurrent use.
type Box struct {
	aead cipher.AEAD
	kind string
}

// NewBox derives the key of a kind from the cluster secret. Data sealed as one kind cannot be
// opened as another.
func NewBox(secret, kind string) (Box, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "orrery/pki/"+kind, 32)
	if err != nil {
		return Box{}, errs.WrapAs(errs.Internal, "seal.NewBox", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return Box{}, errs.WrapAs(errs.Internal, "seal.NewBox", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return Box{}, errs.WrapAs(errs.Internal, "seal.NewBox", err)
	}
	return Box{aead: aead, kind: kind}, nil
}

// About returns a box for one subject. Data sealed with it can only be opened for the same
// subject, so sealed values cannot be swapped.
func (b Box) About(subject string) Box {
	b.kind += "\x00" + subject
	return b
}

// Seal encrypts plain. Every call returns a different result.
func (b Box) Seal(plain []byte) []byte {
	nonce := make([]byte, b.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return b.aead.Seal(nonce, nonce, plain, []byte(b.kind))
}

// Open decrypts sealed. The error is Invalid for the field cluster.secret if the data was sealed
// with another secret, kind or subject, or was changed.
func (b Box) Open(sealed []byte) ([]byte, error) {
	if n := b.aead.NonceSize(); len(sealed) > n {
		if plain, err := b.aead.Open(nil, sealed[:n], sealed[n:], []byte(b.kind)); err == nil {
			return plain, nil
		}
	}
	return nil, errs.Field("cluster.secret",
		"cannot decrypt this cluster's keys: use the secret with which the cluster was first started")
}
