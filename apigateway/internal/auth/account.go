package auth

import (
	"context"

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

// Session is the first token of a login of a user with a revision that the view has.
func (s *Service) Session(user *fleet.User) (string, error) { return s.signer.sign(user, "") }
