package auth

import (
	"context"
	"crypto/rand"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// minPassword is the length of the shortest password that may be set, in bytes.
const minPassword = 8

// HashPassword is what is kept of a new password. Invalid, naming the field, when it is too
// short or too long.
func (s *Service) HashPassword(ctx context.Context, field, password string) (string, error) {
	if len(password) < minPassword || len(password) > maxPassword {
		return "", errs.Field(field, "must have %d to %d bytes", minPassword, maxPassword)
	}
	return s.hasher.hash(ctx, password)
}

// CheckPassword is the record of who asks, once the password was proven to be theirs.
// Unauthenticated when it is wrong.
func (s *Service) CheckPassword(ctx context.Context, who Identity, password string) (*fleet.User, error) {
	user, ok := s.User(who.User)
	if !ok {
		return nil, errs.New(errs.Unauthenticated, "the user %s does not exist any more", who.User)
	}
	right, err := s.hasher.verify(ctx, password, user.PasswordHash)
	if err == nil && !right {
		err = errs.New(errs.Unauthenticated, "the current password is wrong")
	}
	return user, err
}

// rehash has a password kept as it would be now, that is still kept as it was once. It is a
// change of the user's record, which moves its ETag: whoever is refused by that finds in the
// audit why. What fails is done at another login.
func (s *Service) rehash(ctx context.Context, user *fleet.User, password string) {
	hash, err := s.hasher.hash(ctx, password)
	if err != nil {
		s.cfg.Log.Debug("a password was not hashed anew", "user", user.Username, "error", err)
		return
	}
	s.later(func(ctx context.Context) error {
		next := *user
		next.PasswordHash = hash
		err := s.cfg.Audited(ctx, user.Username, "user.rehash", user.Username, "the same password is kept as passwords are now", store.Replace(store.UserKey(user.Username), next, user.ModRev))
		return errs.Wrap("auth.rehash", err)
	})
}

// NewLogin is a login of a user that begins now. The caller stores it.
func (s *Service) NewLogin(user *fleet.User) fleet.Login {
	return fleet.Login{ID: rand.Text(), UserID: user.ID(), Epoch: user.Epoch, SignedInAt: s.cfg.Now().UTC(), Serial: 1}
}

// Tokens are what a login is used and refreshed with. refresh is empty when the login has no
// refresh token.
func (s *Service) Tokens(user *fleet.User, l fleet.Login) (access, refresh string, err error) {
	if access, err = s.signer.sign(user, l); err != nil || l.Serial == 0 {
		return access, "", err
	}
	refresh, err = s.signer.signRefresh(user, l)
	return access, refresh, err
}

// Refreshes is whose login a refresh token is of, and its serial. Unauthenticated when it is
// no token that was made here, or its login has ended by itself.
func (s *Service) Refreshes(token string) (user, login string, serial int64, err error) {
	c, err := s.signer.parseRefresh(token)
	return c.Subject, c.Login, c.Serial, err
}
