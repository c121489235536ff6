// Package seal encrypts secrets before they are stored, with AES-256-GCM and a key for each kind of
// secret.
//
// The keys of a cluster are its keyring: versions of random keys in etcd, wrapped by key-encryption keys
// that only services have. Each sealed value names its version. Until a cluster has a keyring, its
// cluster secret seals.
//
// It protects data in etcd and its backups. It does not protect against services that have the
// key-encryption key.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"

	"github.com/orreryhq/orrery/libs/errs"
)

// mark begins every sealed value that names its version. The version's ID follows.
const mark = "ork"

// Box encrypts and decrypts one kind of secret. It is safe for concurrent use.
type Box struct {
	ring   *Ring
	values bool
	kind   string
	about  string
}

// NewBox returns a box without a keyring: the secret seals.
func NewBox(secret, kind string) Box { return Only(secret).Records(kind) }

// About returns a box for one subject. Data sealed with it can only be opened for the same
// subject, so sealed values cannot be swapped.
func (b Box) About(subject string) Box {
	b.about += "\x00" + subject
	return b
}

// Seal encrypts plain. Every call returns a different result.
func (b Box) Seal(plain []byte) []byte {
	id, key := b.ring.current(b.values)
	aead := newAEAD(key, b.kind)
	var out []byte
	if id != "" {
		out = []byte(mark + id)
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return aead.Seal(append(out, nonce...), nonce, plain, []byte(b.kind+b.about))
}

// Open decrypts sealed. The error is Invalid if the data was sealed with a key that this program does
// not have, or as another kind or subject, or was changed.
func (b Box) Open(sealed []byte) ([]byte, error) {
	id := VersionOf(sealed)
	if id != "" {
		key, err := b.ring.version(id, b.values)
		if err == nil {
			if plain, ok := b.open(key, sealed[len(mark)+idBytes:]); ok {
				return plain, nil
			}
		}
		if errs.Is(err, errs.Unavailable) {
			return nil, err
		}
	}
	if b.ring.secret != "" { // what another kind of sealing begins with may be a nonce
		if plain, ok := b.open([]byte(b.ring.secret), sealed); ok {
			return plain, nil
		}
	}
	if id == "" {
		return nil, errs.Field("cluster.secret",
			"cannot decrypt this cluster's keys: use the secret with which the cluster was first started")
	}
	return nil, errs.Field("seal.key", "cannot decrypt what version %s of the sealing key sealed: use the key file of the cluster's gateways (seal.key)", id)
}

func (b Box) open(key, sealed []byte) ([]byte, bool) {
	aead := newAEAD(key, b.kind)
	n := aead.NonceSize()
	if len(sealed) <= n {
		return nil, false
	}
	plain, err := aead.Open(nil, sealed[:n], sealed[n:], []byte(b.kind+b.about))
	return plain, err == nil
}

// Renew returns sealed, sealed by the current version. It returns sealed itself if that is so already.
// Errors are those of Open.
func (b Box) Renew(sealed []byte) ([]byte, error) {
	if id, _ := b.ring.current(b.values); len(sealed) == 0 || id == VersionOf(sealed) {
		return sealed, nil
	}
	plain, err := b.Open(sealed)
	if err != nil {
		return nil, err
	}
	return b.Seal(plain), nil
}

// VersionOf returns the version that a sealed value names; empty if the cluster secret sealed it.
func VersionOf(sealed []byte) string {
	if len(sealed) < len(mark)+idBytes || string(sealed[:len(mark)]) != mark {
		return ""
	}
	id := sealed[len(mark) : len(mark)+idBytes]
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return ""
		}
	}
	return string(id)
}

// newAEAD derives the key of a kind. Data sealed as one kind cannot be opened as another.
func newAEAD(secret []byte, kind string) cipher.AEAD {
	block, err := aes.NewCipher(derive(secret, "orrery/pki/"+kind, 32))
	if err != nil { // a key of 32 bytes is always accepted
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil { // GCM accepts every AES cipher
		panic(err)
	}
	return aead
}

func derive(secret []byte, info string, n int) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, info, n)
	if err != nil { // only for lengths that SHA-256 cannot give
		panic(err)
	}
	return key
}
