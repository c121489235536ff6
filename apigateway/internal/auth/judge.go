package auth

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/bell"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Credential is what the identity was proven with, to be judged again later.
func (i Identity) Credential() fleet.Credential { return i.credential }

// Judge is who a credential names, and what that one may do now. Unauthenticated when it has
// ended: it expired, its login or API token is no more, or its user has another password or name.
func (s *Service) Judge(c fleet.Credential) (Identity, error) {
	ended := errs.New(errs.Unauthenticated, "the token is no longer good: log in again, or send another API token")
	if !c.Until.IsZero() && !s.cfg.Now().Before(c.Until) {
		return Identity{}, ended
	}
	snap := s.cfg.View.Snapshot()
	user, ok := snap.Users.Get(c.User)
	if !ok {
		return Identity{}, ended
	}
	var token *fleet.APIToken
	if c.TokenID == "" {
		if _, revoked := snap.Revocations.Get(c.Login); revoked || c.Epoch != user.Epoch {
			return Identity{}, ended
		}
	} else if token, ok = snap.APITokens.Get(c.TokenID); !ok || !token.Belongs(user) {
		return Identity{}, ended
	}
	who := identityOf(snap, user, token)
	who.credential = c
	return who, nil
}

// While is a context that ends with ctx, and as soon as a credential has ended or who it
// names lacks one of the permissions; its cause is the error then. leave is to be called at the end.
// Unauthenticated or Denied when that is so already.
func (s *Service) While(ctx context.Context, c fleet.Credential, permissions ...Permission) (_ context.Context, leave func(), err error) {
	return s.while(ctx, s.changed, c.Until, func() error { return s.May(c, permissions...) })
}

// WhileInstance is While for what an instance proved itself with.
func (s *Service) WhileInstance(ctx context.Context, c fleet.Credential) (_ context.Context, leave func(), err error) {
	return s.while(ctx, s.lives, time.Time{}, func() error { return s.mayInstance(c) })
}

// mayInstance is why an instance's credential has ended; nil when it has not.
func (s *Service) mayInstance(c fleet.Credential) error {
	snap := s.cfg.View.Snapshot()
	i, _ := snap.Instances.Get(c.Instance)
	known, _ := snap.Credentials.Get(c.Instance)
	if t := (fleet.OwnToken{Instance: c.Instance, Generation: c.Generation, Root: c.Root}); !t.Of(i) || known.Revoked(c.Root) || s.barred(snap, i) {
		return errs.New(errs.Unauthenticated, "the instance has ended, or its token or its node was revoked")
	}
	return nil
}

// while is a context that ends with ctx, and with the error of judge, which is asked now,
// whenever a bell rings, and when something expires.
func (s *Service) while(ctx context.Context, b *bell.Bell, expires time.Time, judge func() error) (_ context.Context, leave func(), err error) {
	changed := b.Next()
	if err := judge(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for s.untilLookedAt(ctx, changed, expires) {
			changed = b.Next()
			if err := judge(); err != nil {
				cancel(err)
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled); <-watched }, nil
}

// May is why who a credential names lacks one of the permissions now, Denied, or is nobody any
// more, Unauthenticated; nil when that one has all.
func (s *Service) May(c fleet.Credential, permissions ...Permission) error {
	who, err := s.Judge(c)
	if err != nil {
		return err
	}
	for _, p := range permissions {
		if !who.Can(p) {
			return errs.New(errs.Denied, "%s", who.Lacks(p))
		}
	}
	return nil
}

// untilLookedAt waits until there is a reason to judge again: a change, or the time at which
// a credential expires, zero for never. false when ctx ended first.
func (s *Service) untilLookedAt(ctx context.Context, changed <-chan struct{}, expires time.Time) bool {
	var expired <-chan time.Time
	if !expires.IsZero() {
		timer := time.NewTimer(expires.Sub(s.cfg.Now()))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-changed:
	case <-expired:
	case <-ctx.Done():
		return false
	}
	return true
}
