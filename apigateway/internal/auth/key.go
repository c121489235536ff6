package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// jwtKeyID is the name of the signing keys among the sealed keys.
	jwtKeyID    = account.SigningKey
	jwtKeyBytes = 32
	// keyNameBytes is the number of bytes of a key's hash in its ID.
	keyNameBytes = 8
)

// signingKey signs login tokens, which contain its ID.
type signingKey struct {
	id     string
	secret []byte
}

func keyOf(secret []byte) signingKey {
	sum := sha256.Sum256(secret)
	return signingKey{hex.EncodeToString(sum[:keyNameBytes]), secret}
}

// ring has the valid keys: all replicas sign with the current one and accept the previous one, which
// may be nil.
type ring struct {
	current   signingKey
	previous  *signingKey
	createdAt time.Time
	// loginsSince is the assumed start of logins without a timestamp.
	loginsSince time.Time
	modRev      int64 // of the record it was read from
}

// accepted returns the keys that may have signed a token: the one with the ID, or all if the token has
// no ID, like those of older versions.
func (r *ring) accepted(id string) (out []signingKey) {
	for _, k := range []*signingKey{&r.current, r.previous} {
		if k != nil && (id == "" || id == k.id) {
			out = append(out, *k)
		}
	}
	return out
}

// ensureKeys creates the signing keys if the store has none, and checks that they can be decrypted.
func (s *Service) ensureKeys(ctx context.Context) (err error) {
	s.box = s.cfg.Ring.Records(account.SigningKey)
	rev, err := s.createKey(ctx)
	for errs.Is(err, errs.Conflict) { // another gateway has just made or replaced the sealing key
		if _, err = s.cfg.Ring.Load(ctx); err == nil {
			rev, err = s.createKey(ctx)
		}
	}
	if err != nil && !errs.Is(err, errs.AlreadyExists) {
		return errs.Wrap("auth.ensureKeys", err)
	}
	record, err := s.keyRecord(ctx, rev)
	if err != nil {
		return errs.Wrap("auth.ensureKeys", err)
	}
	keys, err := s.open(record)
	s.keys.Store(keys)
	return err
}

// createKey stores the first signing key. AlreadyExists if there is one, Conflict if the sealing key was
// replaced.
func (s *Service) createKey(ctx context.Context) (int64, error) {
	return s.cfg.Store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Unchanged(keys.Keyring(), s.cfg.Ring.Rev())},
		Writes: []store.Write{store.Create(keys.SealedKey(jwtKeyID), s.sealed(nil, s.cfg.Now().UTC()))},
	})
}

// keyRecord returns the record of the keys at rev or later. If it comes from an older version, keyRecord
// adds loginsSince.
func (s *Service) keyRecord(ctx context.Context, rev int64) (*account.SealedKey, error) {
	for {
		snap, err := s.cfg.View.WaitRev(ctx, rev)
		if err != nil {
			return nil, err
		}
		record, ok := snap.SealedKeys.Get(jwtKeyID)
		if !ok {
			return nil, errs.New(errs.Internal, "there is no key to sign tokens with")
		}
		if !record.LoginsSince.IsZero() {
			return record, nil
		}
		dated := *record
		dated.LoginsSince = s.cfg.Now().UTC()
		rev, err = s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.SealedKey(jwtKeyID), dated, record.ModRev)}})
		if err != nil && !errs.Is(err, errs.Conflict) { // on Conflict, another replica was faster
			return nil, err
		}
	}
}

// sealed returns a record with a new key and the encrypted previous one.
func (s *Service) sealed(previous []byte, loginsSince time.Time) account.SealedKey {
	key := make([]byte, jwtKeyBytes)
	_, _ = rand.Read(key) // never fails
	return account.SealedKey{ID: jwtKeyID, Sealed: s.box.Seal(key), Previous: previous, CreatedAt: s.cfg.Now().UTC(), LoginsSince: loginsSince}
}

func (s *Service) open(record *account.SealedKey) (*ring, error) {
	current, err := s.box.Open(record.Sealed)
	if err != nil {
		return nil, err
	}
	out := &ring{current: keyOf(current), createdAt: record.CreatedAt, loginsSince: record.LoginsSince, modRev: record.ModRev}
	if len(record.Previous) == 0 {
		return out, nil
	}
	previous, err := s.box.Open(record.Previous)
	if err != nil {
		return nil, err
	}
	out.previous = new(keyOf(previous))
	return out, nil
}

// ring returns the keys in the view. If they cannot be decrypted, it returns the previous ring.
func (s *Service) ring() *ring {
	known := s.keys.Load()
	record, ok := s.cfg.View.Snapshot().SealedKeys.Get(jwtKeyID)
	if !ok || record.ModRev == known.modRev {
		return known
	}
	keys, err := s.open(record)
	if err != nil {
		s.cfg.Log.Error("cannot read the signing keys, using the previous ones", "error", err)
		kept := *known
		kept.modRev, keys = record.ModRev, &kept
	}
	if keys.loginsSince.IsZero() { // a gateway of an earlier version rotated the keys
		keys.loginsSince = known.loginsSince
	}
	s.keys.Store(keys)
	return keys
}

// Keys has the IDs of the valid keys.
type Keys struct {
	Current string `json:"current"`
	// Previous no longer signs, but tokens that it signed are valid. It is nil before the first rotation.
	Previous  *string   `json:"previous"`
	CreatedAt time.Time `json:"createdAt"` // of the current one
}

// Keys returns the IDs of the valid keys and the revision of their record.
func (s *Service) Keys() (Keys, int64) {
	r := s.ring()
	out := Keys{Current: r.current.id, CreatedAt: r.createdAt}
	if r.previous != nil {
		out.Previous = &r.previous.id
	}
	return out, r.modRev
}

// RotateKeys returns a write that makes a new key current. Tokens of the current key stay valid until
// the next rotation; those of the previous key become invalid. Committing fails with Conflict if
// another rotation was faster.
func (s *Service) RotateKeys() (store.Write, error) {
	record, ok := s.cfg.View.Snapshot().SealedKeys.Get(jwtKeyID)
	if !ok {
		return store.Write{}, errs.New(errs.Conflict, "there are no signing keys yet: retry")
	}
	previous, err := s.box.Renew(record.Sealed)
	if err != nil {
		return store.Write{}, err
	}
	return store.Replace(keys.SealedKey(jwtKeyID), s.sealed(previous, record.LoginsSince), record.ModRev), nil
}
