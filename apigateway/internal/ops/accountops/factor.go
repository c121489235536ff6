package accountops

import (
	"context"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth/totp"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

var (
	// ErrCodeMissing says that the password is right and a code is needed. It counts neither as a wrong
	// password nor as a right one.
	ErrCodeMissing = errs.New(errs.Unauthenticated, "this user has a second factor: send the code of the authenticator, or a recovery code, as code")
	// ErrCodeWrong says that the password is right and the code is not. It counts as a wrong password.
	ErrCodeWrong = errs.New(errs.Unauthenticated,
		"the code is wrong, has expired or was used before: send the one that the authenticator shows next, or a recovery code; check the clock of the authenticator's device")
)

// factorBox returns the box that seals a user's factor.
func (o *Accounts) factorBox(u *account.User) seal.Box {
	return o.deps.Seal.About(account.AboutFactor(u.ID()))
}

// factorOf returns a user's factor and its opened secret; nil for a user without one.
func (o *Accounts) factorOf(s *view.Snapshot, u *account.User) (f *account.Factor, secret []byte, err error) {
	f, ok := s.Factors.Get(u.ID())
	if !ok {
		return nil, nil, nil
	}
	secret, err = o.factorBox(u).Open(f.Sealed)
	return f, secret, errs.WrapAs(errs.Internal, "operate.factorOf", err)
}

// userOf returns the user with a name and an ID, which was authenticated earlier.
func userOf(s *view.Snapshot, name, id string) (*account.User, error) {
	u, ok := s.Users.Get(name)
	if !ok || u.ID() != id {
		return nil, noUser(name)
	}
	return u, nil
}

// CheckFactor checks the code of a user who has proved the password, and uses it up. It returns nil
// for a user without a second factor, ErrCodeMissing or ErrCodeWrong, and Unavailable when etcd does
// not answer, because a code could be used twice then.
func (o *Accounts) CheckFactor(ctx context.Context, by txn.Actor, u *account.User, code string) error {
	by.User, by.ID, by.Role = u.Username, u.ID(), u.Role
	if err := o.awaitFactor(ctx, u); err != nil {
		return err
	}
	_, err := o.Mutate(txn.WithoutOnce(ctx), by, func(s *view.Snapshot) (txn.Change, error) {
		f, secret, err := o.factorOf(s, u)
		if err != nil {
			return txn.Change{}, err
		}
		next, verdict := totp.Check(f, secret, code, o.Now())
		c := txn.Change{}
		switch verdict {
		case totp.NotAsked:
			return c, nil
		case totp.Missing:
			return c, ErrCodeMissing
		case totp.Wrong:
			return c, ErrCodeWrong
		case totp.Recovered:
			c.Audit = txn.Entry{
				Action: account.ActionRecoveryCode, Resource: "user", ID: u.Username, Objects: []string{"user/" + u.Username, "login/" + u.Username},
				Details: fmt.Sprintf("a recovery code was used; %d are left", len(next.Recovery)),
			}
		case totp.Accepted:
		}
		next.Sealed, err = o.factorBox(u).Renew(next.Sealed)
		c.Writes = []store.Write{store.Replace(keys.Factor(u.ID()), next, f.ModRev)}
		return c, err
	})
	return err
}

// factorTimeout is how long a login waits for etcd to say whether the user has a second factor.
const factorTimeout = 2 * time.Second

// awaitFactor waits until the view shows the second factor of a user, if etcd has one: another gateway may have
// just enrolled the user. While etcd does not answer, the view decides.
func (o *Accounts) awaitFactor(ctx context.Context, u *account.User) error {
	if _, ok := o.Snapshot().Factors.Get(u.ID()); ok {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, factorTimeout)
	defer cancel()
	f, err := store.Get(within, o.Store, keys.Factor(u.ID()))
	if err != nil { // NotFound: there is none
		return nil
	}
	_, err = o.View.WaitRev(ctx, f.ModRev)
	return errs.Wrap("operate.awaitFactor", err)
}

// Enrolment is what a user needs to set up an authenticator.
type Enrolment struct {
	Secret    []byte
	ExpiresAt time.Time
}

// BeginFactor begins to enrol a user for a second factor. It replaces an enrolment that is not
// confirmed. Conflict when the user has a second factor already.
func (o *Accounts) BeginFactor(ctx context.Context, by txn.Actor) (out Enrolment, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		u, err := userOf(s, by.User, by.ID)
		if err != nil {
			return txn.Change{}, err
		}
		old, ok := s.Factors.Get(u.ID())
		var rev int64
		if ok {
			rev = old.ModRev
		}
		if old.Confirmed() {
			return txn.Change{}, errs.New(errs.Conflict, "you have a second factor already: disable it first, with one of its codes")
		}
		now := o.Now()
		out = Enrolment{Secret: totp.NewSecret(), ExpiresAt: now.Add(totp.EnrolTime)}
		return txn.Change{
			Guards: []store.Guard{store.Unchanged(keys.User(u.Username), u.ModRev)}, // deleting a user deletes the factor
			Writes: []store.Write{store.Replace(keys.Factor(u.ID()), account.Factor{Sealed: o.factorBox(u).Seal(out.Secret), BeganAt: now}, rev)},
			Audit:  txn.Entry{Action: "user.second-factor.begin", Resource: "user", ID: u.Username},
		}, nil
	})
	return out, err
}

// ConfirmFactor ends the enrolment of a user with a code of the authenticator, and returns recovery
// codes. From then on a login needs a code. Conflict when no enrolment was begun lately, or the user
// has a second factor already; Invalid, naming the field code, when the code is wrong.
func (o *Accounts) ConfirmFactor(ctx context.Context, by txn.Actor, code string) (recovery []string, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		u, err := userOf(s, by.User, by.ID)
		if err != nil {
			return txn.Change{}, err
		}
		f, secret, err := o.factorOf(s, u)
		if err != nil {
			return txn.Change{}, err
		}
		next, verdict := totp.Confirm(f, secret, code, o.Now())
		switch verdict {
		case totp.Already:
			return txn.Change{}, errs.New(errs.Conflict, "the second factor is confirmed already")
		case totp.NotBegun:
			return txn.Change{}, errs.New(errs.Conflict, "no enrolment was begun during the last %d minutes: begin one and confirm it in time", int(totp.EnrolTime.Minutes()))
		case totp.WrongCode:
			return txn.Change{}, errs.Field("code", "is not what the authenticator shows now: enter the secret again, or check the clock of the authenticator's device")
		case totp.Confirms:
		}
		recovery, next.Recovery = totp.NewRecoveryCodes()
		next.Sealed, err = o.factorBox(u).Renew(next.Sealed)
		return txn.Change{
			Writes: []store.Write{store.Replace(keys.Factor(u.ID()), next, f.ModRev)},
			Audit:  txn.Entry{Action: "user.second-factor.enable", Resource: "user", ID: u.Username},
		}, err
	})
	return recovery, err
}

// DisableFactor removes the caller's own second factor, which a code proves. Call it within Prove.
// NotFound when the user has none, ErrCodeMissing and ErrCodeWrong as in CheckFactor.
func (o *Accounts) DisableFactor(ctx context.Context, by txn.Actor, code string) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		u, err := userOf(s, by.User, by.ID)
		if err != nil {
			return txn.Change{}, err
		}
		f, secret, err := o.factorOf(s, u)
		if err != nil {
			return txn.Change{}, err
		}
		_, verdict := totp.Check(f, secret, code, o.Now())
		switch verdict {
		case totp.NotAsked:
			return txn.Change{}, noFactor(u.Username)
		case totp.Missing:
			return txn.Change{}, ErrCodeMissing
		case totp.Wrong:
			return txn.Change{}, ErrCodeWrong
		case totp.Accepted, totp.Recovered:
		}
		return factorRemoved(u, f, "user.second-factor.disable"), nil
	})
	return err
}

// RemoveFactor removes the second factor of a user who cannot log in any more. NotFound when the user
// does not exist or has none, Denied when the user has more permissions than the caller.
func (o *Accounts) RemoveFactor(ctx context.Context, by txn.Actor, name string, may []account.Permission) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		u, err := changeable(s, name, 0, may)
		if err != nil {
			return txn.Change{}, err
		}
		f, ok := s.Factors.Get(u.ID())
		if !ok {
			return txn.Change{}, noFactor(name)
		}
		return factorRemoved(u, f, "user.second-factor.remove"), nil
	})
	return err
}

func noFactor(name string) error {
	return errs.New(errs.NotFound, "the user %s has no second factor", name)
}

func factorRemoved(u *account.User, f *account.Factor, action string) txn.Change {
	return txn.Change{
		Writes: []store.Write{store.Remove(keys.Factor(u.ID()), f.ModRev)},
		Audit:  txn.Entry{Action: action, Resource: "user", ID: u.Username},
	}
}
