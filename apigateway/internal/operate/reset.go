package operate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// ResetTTL is how long a token that resets a password is good for, unless a setting says otherwise.
	ResetTTL = 30 * time.Minute
	// resetPause is how long a user is told of no other token.
	resetPause = time.Minute
	// maxResets bounds the users of one address that are told of.
	maxResets = 8
	// A token is the beginning of the hash of its user's name, which finds its record, and what nobody can guess.
	resetNameBytes, resetSecretBytes = 16, 24
)

// ErrResetToken says that a token resets no password.
var ErrResetToken = errs.New(errs.Malformed, "the token was used, has expired or was never issued: ask for another one")

// Resets reports whether forgotten passwords can be reset.
func (o *Operations) Resets() bool { return o.cfg.TellReset != nil }

// RequestReset has the users with an address told of a token that resets their password,
// behind the answer, so that nobody learns from it whether there are any.
func (o *Operations) RequestReset(by Actor, email string) {
	job := func(ctx context.Context) {
		if err := o.tellResets(ctx, by, email); err != nil {
			o.cfg.Log.Warn("a password could not be reset", "error", err)
		}
	}
	select {
	case o.jobs <- job:
	default:
		o.cfg.Log.Warn("a password could not be reset: too much else is to be done")
	}
}

func (o *Operations) tellResets(ctx context.Context, by Actor, email string) error {
	told := 0
	for _, u := range o.Snapshot().Users.All() {
		if email == "" || !strings.EqualFold(u.Email, email) || told >= maxResets {
			continue
		}
		told++
		token, err := o.newReset(ctx, by, u)
		if err != nil {
			return err
		}
		if token == "" {
			continue
		}
		if err := o.cfg.TellReset(ctx, *u, token); err != nil {
			return errs.Wrap("operate.tellResets", err)
		}
	}
	return nil
}

// newReset is a token for a user, in whose place an earlier one ends; none when there is a
// fresh one already.
func (o *Operations) newReset(ctx context.Context, by Actor, u *fleet.User) (token string, err error) {
	name := sha256.Sum256([]byte(u.Username))
	secret := make([]byte, resetSecretBytes)
	_, _ = rand.Read(secret) // never fails
	token = base64.RawURLEncoding.EncodeToString(append(name[:resetNameBytes:resetNameBytes], secret...))
	key, now := store.ResetKey(hex.EncodeToString(name[:resetNameBytes])), o.now()
	err = InTime(ctx, func(ctx context.Context) error {
		old, err := store.Get(ctx, o.cfg.Store, key)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		if err == nil && now.Sub(old.At) < resetPause {
			token = ""
			return nil
		}
		lease, err := o.cfg.Store.Grant(ctx, o.cfg.Settings().Reset)
		if err != nil {
			return err
		}
		record := fleet.Reset{User: u.Username, Epoch: u.Epoch, Hash: hashOf(token), At: now}
		noted := o.note(by, entry{action: fleet.ActionResetRequest, resource: "user", id: u.Username})
		rev, err := o.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{
			store.ReplaceOn(lease, key, record, old.ModRev), store.Create(store.AuditKey(noted.ID), noted),
		}})
		if err == nil {
			o.copied(noted, rev)
		}
		return err
	})
	return token, errs.Wrap("operate.newReset", err)
}

// ResetPassword gives a user the password whose hash it is, for a token, which is used up. The
// user's logins end, and a lockout does. ErrResetToken when the token is not good.
func (o *Operations) ResetPassword(ctx context.Context, by Actor, token string, hash func() (string, error)) error {
	if _, err := o.resetOf(ctx, token); err != nil { // before any work is done for it
		return err
	}
	password, err := hash()
	if err != nil {
		return err
	}
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		reset, err := o.resetOf(ctx, token)
		if err != nil {
			return change{}, err
		}
		u, ok := s.Users.Get(reset.User)
		if !ok || u.Epoch != reset.Epoch {
			return change{}, ErrResetToken
		}
		w := UserWrite{PasswordHash: &password}
		to := w.applied(*u)
		after := showUser(to)
		after.Password = "changed"
		c := change{
			writes: []store.Write{store.Replace(store.UserKey(u.Username), to, u.ModRev), store.Remove(resetKey(token), reset.ModRev)},
			audit:  entry{action: "auth.password-reset", resource: "user", id: u.Username, before: showUser(*u), after: after},
		}
		c.forgive(s, u.Username)
		return c, nil
	})
	return err
}

// resetKey is where a well-formed token's record stands.
func resetKey(token string) store.Key[fleet.Reset] {
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	return store.ResetKey(hex.EncodeToString(raw[:min(len(raw), resetNameBytes)]))
}

// resetOf is a token's record.
func (o *Operations) resetOf(ctx context.Context, token string) (out fleet.Reset, err error) {
	if raw, err := base64.RawURLEncoding.DecodeString(token); err != nil || len(raw) != resetNameBytes+resetSecretBytes {
		return out, ErrResetToken
	}
	err = InTime(ctx, func(ctx context.Context) error {
		out, err = store.Get(ctx, o.cfg.Store, resetKey(token))
		return err
	})
	if errs.Is(err, errs.NotFound) || err == nil && subtle.ConstantTimeCompare([]byte(out.Hash), []byte(hashOf(token))) != 1 {
		return fleet.Reset{}, ErrResetToken
	}
	return out, errs.Wrap("operate.resetOf", err)
}
