package auth

import (
	"context"
	"time"

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

// Session is a new token for a user with a revision that the view has.
func (s *Service) Session(user *fleet.User) (string, error) { return s.signer.sign(user) }

// Logout is the write with which the token of a login ends, on every replica as soon as it
// has it; its record goes when the token would have. Denied for an API token.
func (s *Service) Logout(ctx context.Context, who Identity) (store.Write, error) {
	if who.TokenID != "" {
		return store.Write{}, errs.New(errs.Denied, "an API token has no login to end: delete it, or let it expire")
	}
	left := who.credential.Until.Sub(s.cfg.Now()) + time.Minute // clocks differ
	lease, err := s.cfg.Store.Grant(ctx, left)
	if err != nil {
		return store.Write{}, errs.Wrap("auth.Logout", err)
	}
	return store.CreateOn(lease, store.RevocationKey(who.credential.Login), fleet.Revocation{User: who.User, At: s.cfg.Now().UTC()}), nil
}
