package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
)

const (
	// jwtKeyID names the signing keys among the sealed keys.
	jwtKeyID    = "jwt"
	jwtKeyBytes = 32
	// keyNameBytes is how much of its hash names a key.
	keyNameBytes = 8
)

// signingKey signs the tokens of logins. Its id stands in them.
type signingKey struct {
	id     string
	secret []byte
}

func keyOf(secret []byte) signingKey {
	sum := sha256.Sum256(secret)
	return signingKey{hex.EncodeToString(sum[:keyNameBytes]), secret}
}

// ring has the keys that are good: all replicas sign with the current one, and accept the
// one before, nil when there is none.
type ring struct {
	current   signingKey
	previous  *signingKey
	createdAt time.Time
	// loginsSince is when logins without a time of their own count as begun.
	loginsSince time.Time
	modRev      int64 // of the record it was read from
}

// accepted are the keys a token may be signed with: the one of an id, or all for one that
// names none, as tokens did once.
func (r *ring) accepted(id string) (out []signingKey) {
	for _, k := range []*signingKey{&r.current, r.previous} {
		if k != nil && (id == "" || id == k.id) {
			out = append(out, *k)
		}
	}
	return out
}

// firstKey makes sure that there is a key to sign with, and that it can be opened; the first
// replica makes it.
func (s *Service) firstKey(ctx context.Context) (err error) {
	if s.box, err = seal.NewBox(s.cfg.ClusterSecret, jwtKeyID); err != nil {
		return err
	}
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(store.SealedKeyKey(jwtKeyID), s.sealed(nil, s.cfg.Now().UTC()))}})
	if err != nil && !errs.Is(err, errs.AlreadyExists) {
		return errs.Wrap("auth.firstKey", err)
	}
	record, err := s.datedKey(ctx, rev)
	if err != nil {
		return errs.Wrap("auth.firstKey", err)
	}
	keys, err := s.open(record)
	s.keys.Store(keys)
	return err
}

// datedKey is the record of the keys, at a revision or later. In one of an earlier version it
// notes that logins without a time of their own count from now on.
func (s *Service) datedKey(ctx context.Context, rev int64) (*fleet.SealedKey, error) {
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
		rev, err = s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(store.SealedKeyKey(jwtKeyID), dated, record.ModRev)}})
		if err != nil && !errs.Is(err, errs.Conflict) { // else another replica was faster
			return nil, err
		}
	}
}

// sealed is a record of a new key and the one before, as that is sealed.
func (s *Service) sealed(previous []byte, loginsSince time.Time) fleet.SealedKey {
	key := make([]byte, jwtKeyBytes)
	_, _ = rand.Read(key) // never fails
	return fleet.SealedKey{ID: jwtKeyID, Sealed: s.box.Seal(key), Previous: previous, CreatedAt: s.cfg.Now().UTC(), LoginsSince: loginsSince}
}

func (s *Service) open(record *fleet.SealedKey) (*ring, error) {
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

// ring is as the view has it now. What cannot be read changes nothing.
func (s *Service) ring() *ring {
	known := s.keys.Load()
	record, ok := s.cfg.View.Snapshot().SealedKeys.Get(jwtKeyID)
	if !ok || record.ModRev == known.modRev {
		return known
	}
	keys, err := s.open(record)
	if err != nil {
		s.cfg.Log.Error("the keys that sign tokens cannot be read: the ones before are used", "error", err)
		kept := *known
		kept.modRev, keys = record.ModRev, &kept
	}
	if keys.loginsSince.IsZero() { // a gateway of an earlier version rotated the keys
		keys.loginsSince = known.loginsSince
	}
	s.keys.Store(keys)
	return keys
}

// Keys tells which keys are good, by their ids.
type Keys struct {
	Current string `json:"current"`
	// Previous signs nothing any more, but what it signed is good still; nil when there is none.
	Previous  *string   `json:"previous"`
	CreatedAt time.Time `json:"createdAt"` // of the current one
}

// Keys are those that are good now, and the revision of their record.
func (s *Service) Keys() (Keys, int64) {
	r := s.ring()
	out := Keys{Current: r.current.id, CreatedAt: r.createdAt}
	if r.previous != nil {
		out.Previous = &r.previous.id
	}
	return out, r.modRev
}

// RotateKeys is the write by which a new key signs tokens, on every replica as soon as it has
// it. What the current one signed stays good until the next time; what the one before did
// ends. Conflict when it is committed after somebody else's.
func (s *Service) RotateKeys() (store.Write, error) {
	record, ok := s.cfg.View.Snapshot().SealedKeys.Get(jwtKeyID)
	if !ok {
		return store.Write{}, errs.New(errs.Conflict, "there are no keys now: try again")
	}
	return store.Replace(store.SealedKeyKey(jwtKeyID), s.sealed(record.Sealed, record.LoginsSince), record.ModRev), nil
}
