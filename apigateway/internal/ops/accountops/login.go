package accountops

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// loginsTogether is for how long new logins share a lease.
const loginsTogether = 24 * time.Hour

// SignIn records a login after the password was proved, audits it, and remembers the network as
// known for the user.
func (o *Accounts) SignIn(ctx context.Context, by txn.Actor, u *account.User, l account.Login) error {
	by.User, by.ID, by.Role = u.Username, u.ID(), u.Role
	network := account.NetworkOf(by.IP)
	return o.keepLogin(ctx, func(s *view.Snapshot, onLogins, onNetworks store.Lease) (txn.Change, error) {
		c := txn.Change{
			Writes: append(displaced(s, l.UserID, o.Now()), store.CreateOn(onLogins, keys.Login(l.ID), l)),
			Audit:  txn.Entry{Action: account.ActionLogin, Resource: "user", ID: u.Username, Objects: []string{"login/" + u.Username}},
		}
		if stale(s, l.UserID, network, o.Now()) {
			w, added := o.meet(s, onNetworks, l.UserID, network)
			if c.Writes = append(c.Writes, w); added {
				c.Audit.Details = "from the new network " + network
			}
		}
		return c, nil
	}, by)
}

// KeepLogin records a login without a record: an earlier version made it, or its record was removed
// for newer ones.
func (o *Accounts) KeepLogin(ctx context.Context, by txn.Actor, l account.Login) error {
	return o.keepLogin(ctx, func(s *view.Snapshot, onLogins, _ store.Lease) (txn.Change, error) {
		if _, ok := s.Logins.Get(l.ID); ok {
			return txn.Change{}, nil
		}
		return txn.Change{
			Guards: []store.Guard{store.Missing(keys.Revocation(l.ID))},
			Writes: append(displaced(s, l.UserID, o.Now()), store.CreateOn(onLogins, keys.Login(l.ID), l)),
		}, nil
	}, by)
}

func (o *Accounts) keepLogin(ctx context.Context, decide func(s *view.Snapshot, onLogins, onNetworks store.Lease) (txn.Change, error), by txn.Actor) error {
	ctx = txn.WithoutOnce(ctx) // the response has tokens and must not be stored
	return txn.InTime(ctx, func(ctx context.Context) error {
		return o.OnLease(ctx, &o.networks, account.KnownNetworkLife, func(onNetworks store.Lease) error {
			return o.MutateOnLease(ctx, by, &o.logins, account.LoginLife, func(s *view.Snapshot, onLogins store.Lease) (txn.Change, error) {
				return decide(s, onLogins, onNetworks)
			})
		})
	})
}

// Logins returns the active logins of a user, newest first.
func Logins(s *view.Snapshot, u *account.User, now time.Time) (out []*account.Login) {
	for id, l := range s.Logins.All() {
		if _, ended := s.Revocations.Get(id); !ended && l.Of(u, now) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *account.Login) int {
		return cmp.Or(b.SignedInAt.Compare(a.SignedInAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// displaced removes records of a user's logins to make room for one more: ended ones, then the
// least recently refreshed.
func displaced(s *view.Snapshot, userID string, now time.Time) (out []store.Write) {
	var all []*account.Login
	for _, l := range s.Logins.All() {
		if l.UserID == userID {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *account.Login) int { return b.LastSeen().Compare(a.LastSeen()) })
	for n, l := range all {
		if (n >= account.MaxLogins-1 || !now.Before(l.Ends())) && len(out) < account.MaxLogins {
			out = append(out, store.Remove(keys.Login(l.ID), l.ModRev))
		}
	}
	return out
}

// RefreshToken is the content of a refresh token.
type RefreshToken struct {
	User, Login string
	Serial      int64
}

// errLoginEnded says that the login of a refresh token has ended.
var errLoginEnded = errs.New(errs.Unauthenticated, "the login has ended: log in again")

// RefreshLogin exchanges a refresh token for the next one. Within fleet.RefreshGrace it returns the
// same next token again. Unauthenticated when the login has ended, or when the token was replaced
// earlier: then two parties have it, and the login ends.
func (o *Accounts) RefreshLogin(ctx context.Context, by txn.Actor, t RefreshToken) (out account.Login, err error) {
	ctx = txn.WithoutOnce(ctx) // the response has tokens and must not be stored
	reused := false
	err = txn.InTime(ctx, func(ctx context.Context) error {
		if l, ok := o.Snapshot().Logins.Get(t.Login); ok && l.Serial < t.Serial { // this gateway's view is behind
			if _, err := o.Current(ctx); err != nil {
				return err
			}
		}
		return o.MutateOnLease(ctx, by, &o.logins, account.LoginLife, func(s *view.Snapshot, lease store.Lease) (txn.Change, error) {
			u, _ := s.Users.Get(t.User)
			l, ok := s.Logins.Get(t.Login)
			_, ended := s.Revocations.Get(t.Login)
			if !ok || ended || !l.Of(u, o.Now()) {
				return txn.Change{}, errLoginEnded
			}
			out, reused = *l, false
			switch l.Refresh(t.Serial, o.Now()) {
			case account.RefreshRotates:
				out = l.Rotated(o.Now())
				return txn.Change{Writes: []store.Write{store.ReplaceOn(lease, keys.Login(t.Login), out, l.ModRev)}}, nil
			case account.RefreshRepeats:
				return txn.Change{}, nil
			case account.RefreshReused:
				reused = true
			case account.RefreshUnknown:
			}
			return txn.Change{}, errLoginEnded
		})
	})
	if !reused {
		return out, err
	}
	by.User = t.User
	if err := o.endLogin(ctx, by, account.Credential{User: t.User, Login: t.Login, Epoch: out.Epoch}, txn.Entry{
		Action: account.ActionRefreshReused, Resource: "user", ID: t.User, Objects: []string{"login/" + t.User},
		Details: "a refresh token was used again after it was replaced: the login ends",
	}); err != nil {
		return account.Login{}, err
	}
	return account.Login{}, errs.New(errs.Unauthenticated, "this refresh token was replaced earlier, so another client may have it: the login has ended, log in again")
}

// EndLoginOf ends the login of a user with this id. NotFound when the user has no such login,
// Denied when the user has more permissions than the caller.
func (o *Accounts) EndLoginOf(ctx context.Context, by txn.Actor, user, id string, may []account.Permission) error {
	s := o.Snapshot()
	u, err := changeable(s, user, 0, may)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(Logins(s, u, o.Now()), func(l *account.Login) bool { return l.ID == id }) {
		return errs.New(errs.NotFound, "the user %s has no session %s", user, txn.Clip(id))
	}
	return o.EndLogin(ctx, by, account.Credential{User: user, Login: id, Epoch: u.Epoch})
}

// EndLogins ends all logins of a user, also those without a record. Errors are those of EndLoginOf.
func (o *Accounts) EndLogins(ctx context.Context, by txn.Actor, user string, may []account.Permission) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		u, err := changeable(s, user, 0, may)
		if err != nil {
			return txn.Change{}, err
		}
		next := *u
		next.Epoch++
		return txn.Change{
			Writes: []store.Write{store.Replace(keys.User(user), next, u.ModRev)},
			Audit:  txn.Entry{Action: account.ActionLogout, Resource: "user", ID: user, Details: "all logins"},
		}, nil
	})
	return err
}
