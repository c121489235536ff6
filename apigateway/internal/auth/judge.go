package auth

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/stream/notify"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// Credential returns the credential of the identity, for checking it again later.
func (i Identity) Credential() account.Credential { return i.credential }

// Judge returns the current identity of a credential. It returns Unauthenticated if the credential
// expired, its login or API token has ended, or its user has a new password or name.
func (s *Service) Judge(c account.Credential) (Identity, error) {
	ended := errs.New(errs.Unauthenticated, "the token is no longer valid: log in again, or send another API token")
	if !c.Until.IsZero() && !s.cfg.Now().Before(c.Until) {
		return Identity{}, ended
	}
	snap := s.cfg.View.Snapshot()
	user, ok := snap.Users.Get(c.User)
	if !ok {
		return Identity{}, ended
	}
	var token *account.APIToken
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

// While returns a context that ends with ctx, or when the credential ends or loses one of the
// permissions; the error is its cause. Call leave at the end. While returns Unauthenticated or Denied
// if that is already the case.
func (s *Service) While(ctx context.Context, c account.Credential, permissions ...Permission) (_ context.Context, leave func(), err error) {
	return s.while(ctx, s.userChanged, c.Until, func() error { return s.May(c, permissions...) })
}

// WhileIn is While for permissions in a group.
func (s *Service) WhileIn(ctx context.Context, c account.Credential, g fleet.GroupName, permissions ...Permission) (_ context.Context, leave func(), err error) {
	who, err := s.Judge(c)
	if err != nil {
		return nil, nil, err
	}
	return s.while(ctx, s.changesOf(who), c.Until, func() error { return s.MayIn(c, g, permissions...) })
}

// changesOf signals that what an identity may do may have changed.
func (s *Service) changesOf(who Identity) *notify.Changes {
	if who.Scoped() {
		return s.scopeChanged
	}
	return s.userChanged
}

// WhileSomewhere is While for a stream that shows the groups in which the identity has a permission. If
// it has the permission in some groups only, the context also ends with Denied when what it may do has
// changed, so that the client opens the stream again. who is the identity that the stream is for.
func (s *Service) WhileSomewhere(ctx context.Context, c account.Credential, p Permission) (who Identity, _ context.Context, leave func(), err error) {
	if who, err = s.Judge(c); err != nil {
		return who, nil, nil, err
	}
	ctx, leave, err = s.while(ctx, s.userChanged, c.Until, func() error {
		now, err := s.Judge(c)
		switch {
		case err != nil:
			return err
		case now.Can(p) && who.Can(p):
			return nil
		case !now.Somewhere(p):
			return errs.New(errs.Denied, "%s", now.Lacks(p))
		case !sameRights(who, now):
			return errs.New(errs.Denied, "what you may see has changed: connect again")
		}
		return nil
	})
	return who, ctx, leave, err
}

// WhileInstance is While for an instance's credential.
func (s *Service) WhileInstance(ctx context.Context, c account.Credential) (_ context.Context, leave func(), err error) {
	return s.while(ctx, s.instanceChanged, time.Time{}, func() error { return s.mayInstance(c) })
}

// mayInstance returns why an instance's credential has ended, or nil.
func (s *Service) mayInstance(c account.Credential) error {
	snap := s.cfg.View.Snapshot()
	i, _ := snap.Instances.Get(c.Instance)
	known, _ := snap.Credentials.Get(c.Instance)
	if t := (account.OwnToken{Instance: c.Instance, Generation: c.Generation, Root: c.Root}); !t.Of(i) || known.Revoked(c.Root) || s.nodeRevoked(snap, i) {
		return errs.New(errs.Unauthenticated, "the instance has ended, or its token or its node was revoked")
	}
	return nil
}

// while returns a context that ends with ctx or with the first error of judge, which is called now, on
// every change, and when the credential expires.
func (s *Service) while(ctx context.Context, b *notify.Changes, expires time.Time, judge func() error) (_ context.Context, leave func(), err error) {
	changed := b.Next()
	if err := judge(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for s.waitForChange(ctx, changed, expires) {
			changed = b.Next()
			if err := judge(); err != nil {
				cancel(err)
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled); <-watched }, nil
}

// May returns Denied if a credential lacks one of the permissions, Unauthenticated if it has ended, else
// nil.
func (s *Service) May(c account.Credential, permissions ...Permission) error {
	return s.MayIn(c, "", permissions...)
}

// MayIn is May for permissions in a group.
func (s *Service) MayIn(c account.Credential, g fleet.GroupName, permissions ...Permission) error {
	who, err := s.Judge(c)
	if err != nil {
		return err
	}
	who, _ = who.In(s.cfg.View.Snapshot(), g)
	for _, p := range permissions {
		if !who.Can(p) {
			return errs.New(errs.Denied, "%s", who.Lacks(p))
		}
	}
	return nil
}

// waitForChange waits for a reason to judge again: a change, or the expiry (zero for never). It returns
// false if ctx ended first.
func (s *Service) waitForChange(ctx context.Context, changed <-chan struct{}, expires time.Time) bool {
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
