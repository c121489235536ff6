package accountops

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// ResetTTL is the default lifetime of a password reset token.
	ResetTTL = 30 * time.Minute
	// resetPause is the minimum time between two reset tokens for a user.
	resetPause = time.Minute
	// maxResets limits the users with one email address that get a token.
	maxResets = 8
	// A token is the start of the hash of the user's name, which locates the record, and a random
	// secret.
	resetNameBytes, resetSecretBytes = 16, 24
)

// ErrResetToken says that a token resets no password.
var ErrResetToken = errs.New(errs.Malformed, "the token was used, has expired or was never issued: ask for another one")

// Resets reports whether forgotten passwords can be reset.
func (o *Accounts) Resets() bool { return o.deps.TellReset != nil }

// RequestReset sends the users with an email address a token that resets their password. It does so
// in the background, so that the caller cannot learn whether there are such users.
func (o *Accounts) RequestReset(by txn.Actor, email string) {
	job := func(ctx context.Context) {
		if err := o.tellResets(ctx, by, email); err != nil {
			o.Log.Warn("a password could not be reset", "error", err)
		}
	}
	if !o.Enqueue(job) {
		o.Log.Warn("a password could not be reset: too much else is to be done")
	}
}

func (o *Accounts) tellResets(ctx context.Context, by txn.Actor, email string) error {
	told := 0
	for _, u := range o.Snapshot().Users.All() {
		if email == "" || !u.Local() || !strings.EqualFold(u.Email, email) || told >= maxResets {
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
		if err := o.deps.TellReset(ctx, *u, token); err != nil {
			return errs.Wrap("operate.tellResets", err)
		}
	}
	return nil
}

// newReset creates a token for a user, which replaces an earlier one. It returns "" when the user
// got one within resetPause.
func (o *Accounts) newReset(ctx context.Context, by txn.Actor, u *account.User) (token string, err error) {
	name := sha256.Sum256([]byte(u.Username))
	secret := make([]byte, resetSecretBytes)
	_, _ = rand.Read(secret) // never fails
	token = base64.RawURLEncoding.EncodeToString(append(name[:resetNameBytes:resetNameBytes], secret...))
	key, now := keys.Reset(hex.EncodeToString(name[:resetNameBytes])), o.Now()
	err = txn.InTime(ctx, func(ctx context.Context) error {
		old, err := store.Get(ctx, o.Store, key)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		if err == nil && now.Sub(old.At) < resetPause {
			token = ""
			return nil
		}
		lease, err := o.Store.Grant(ctx, o.deps.Settings().Reset)
		if err != nil {
			return err
		}
		record := account.Reset{User: u.Username, Epoch: u.Epoch, Hash: hashOf(token), At: now}
		noted := o.NewEntry(by, txn.Entry{Action: account.ActionResetRequest, Resource: "user", ID: u.Username})
		rev, err := o.Store.Commit(ctx, store.Txn{Writes: []store.Write{
			store.ReplaceOn(lease, key, record, old.ModRev), store.Create(keys.Audit(noted.ID), noted),
		}})
		if err == nil {
			o.Publish(noted, rev)
		}
		return err
	})
	return token, errs.Wrap("operate.newReset", err)
}

// ResetPassword uses up a token to set a user's password to hash. It ends the user's logins, and
// the lockout unless logins need a code. ErrResetToken when the token is not valid.
func (o *Accounts) ResetPassword(ctx context.Context, by txn.Actor, token string, hash func() (string, error)) error {
	if _, err := o.resetOf(ctx, token); err != nil { // check the token before hashing
		return err
	}
	password, err := hash()
	if err != nil {
		return err
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		reset, err := o.resetOf(ctx, token)
		if err != nil {
			return txn.Change{}, err
		}
		u, ok := s.Users.Get(reset.User)
		if !ok || u.Epoch != reset.Epoch {
			return txn.Change{}, ErrResetToken
		}
		w := UserWrite{PasswordHash: &password}
		to := w.applied(*u)
		after := ShowUser(to)
		after.Password = "changed"
		c := txn.Change{
			Writes: []store.Write{store.Replace(keys.User(u.Username), to, u.ModRev), store.Remove(resetKey(token), reset.ModRev)},
			Audit:  txn.Entry{Action: "auth.password-reset", Resource: "user", ID: u.Username, Before: ShowUser(*u), After: after},
		}
		if !needsCode(s, u.Username) { // otherwise whoever reads the mail could guess codes without end
			forgive(&c, s, u.Username)
		}
		return c, nil
	})
	return err
}

// resetKey is where a well-formed token's record stands.
func resetKey(token string) keys.Key[account.Reset] {
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	return keys.Reset(hex.EncodeToString(raw[:min(len(raw), resetNameBytes)]))
}

// resetOf is a token's record.
func (o *Accounts) resetOf(ctx context.Context, token string) (out account.Reset, err error) {
	if raw, err := base64.RawURLEncoding.DecodeString(token); err != nil || len(raw) != resetNameBytes+resetSecretBytes {
		return out, ErrResetToken
	}
	err = txn.InTime(ctx, func(ctx context.Context) error {
		out, err = store.Get(ctx, o.Store, resetKey(token))
		return err
	})
	if errs.Is(err, errs.NotFound) || err == nil && subtle.ConstantTimeCompare([]byte(out.Hash), []byte(hashOf(token))) != 1 {
		return account.Reset{}, ErrResetToken
	}
	return out, errs.Wrap("operate.resetOf", err)
}
