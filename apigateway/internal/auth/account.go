package auth

import (
	"context"
	"crypto/rand"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// minPassword is the minimum length of a new password, in bytes.
const minPassword = 8

// HashPassword returns the hash of a new password. It returns Invalid, naming the field, for a wrong
// length.
func (s *Service) HashPassword(ctx context.Context, field, password string) (string, error) {
	if len(password) < minPassword || len(password) > maxPassword {
		return "", errs.Field(field, "must have %d to %d bytes", minPassword, maxPassword)
	}
	return s.hasher.hash(ctx, password)
}

// CheckPassword returns the caller's record if the password is correct, else Unauthenticated.
func (s *Service) CheckPassword(ctx context.Context, who Identity, password string) (*account.User, error) {
	user, ok := s.User(who.User)
	if !ok {
		return nil, errs.New(errs.Unauthenticated, "the user %s no longer exists", who.User)
	}
	if !user.Local() {
		return nil, errs.New(errs.Conflict, "the user %s has no password here: %s keeps it", who.User, user.Issuer)
	}
	right, err := s.hasher.verify(ctx, password, user.PasswordHash)
	if err == nil && !right {
		err = errs.New(errs.Unauthenticated, "the current password is wrong")
	}
	return user, err
}

// rehash stores a password's hash with the current parameters if the old hash has others. This
// changes the user's record and its ETag; the audit explains why. A failure is ignored: the next
// login tries again.
func (s *Service) rehash(ctx context.Context, user *account.User, password string) {
	hash, err := s.hasher.hash(ctx, password)
	if err != nil {
		s.cfg.Log.Debug("cannot hash a password with the current parameters", "user", user.Username, "error", err)
		return
	}
	s.inBackground(func(ctx context.Context) error {
		next := *user
		next.PasswordHash = hash
		err := s.cfg.Audited(ctx, user.Username, "user.rehash", user.Username, "the hash of the same password was replaced by one with the current parameters", store.Replace(keys.User(user.Username), next, user.ModRev))
		return errs.Wrap("auth.rehash", err)
	})
}

// NewLogin returns a new login of a user. The caller stores it.
func (s *Service) NewLogin(user *account.User) account.Login {
	return account.Login{ID: rand.Text(), UserID: user.ID(), Epoch: user.Epoch, SignedInAt: s.cfg.Now().UTC(), Serial: 1}
}

// Tokens returns the access and refresh tokens of a login. refresh is empty if the login has no refresh
// token.
func (s *Service) Tokens(user *account.User, l account.Login) (access, refresh string, err error) {
	if access, err = s.signer.sign(user, l); err != nil || l.Serial == 0 {
		return access, "", err
	}
	refresh, err = s.signer.signRefresh(user, l)
	return access, refresh, err
}

// Refreshes returns the user, login and serial of a refresh token. It returns Unauthenticated if the
// token was not signed by this cluster or has expired.
func (s *Service) Refreshes(token string) (user, login string, serial int64, err error) {
	c, err := s.signer.parseRefresh(token)
	return c.Subject, c.Login, c.Serial, err
}
