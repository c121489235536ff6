package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// loginsTogether is how long logins are put on one lease.
const loginsTogether = 24 * time.Hour

// SignIn records the login of a user who proved the password, in the audit too, and that the
// network is known of the user from now on.
func (o *Operations) SignIn(ctx context.Context, by Actor, u *fleet.User, l fleet.Login) error {
	by.User, by.ID, by.Role = u.Username, u.ID(), u.Role
	network := fleet.NetworkOf(by.IP)
	return o.keepLogin(ctx, func(s *view.Snapshot, onLogins, onNetworks store.Lease) (change, error) {
		c := change{
			writes: append(displaced(s, l.UserID, o.now()), store.CreateOn(onLogins, store.LoginKey(l.ID), l)),
			audit:  entry{action: fleet.ActionLogin, resource: "user", id: u.Username, objects: []string{"login/" + u.Username}},
		}
		if stale(s, l.UserID, network, o.now()) {
			w, added := o.meet(s, onNetworks, l.UserID, network)
			if c.writes = append(c.writes, w); added {
				c.audit.details = "from the new network " + network
			}
		}
		return c, nil
	}, by)
}

// KeepLogin records a login that has no record: it is of an earlier version, or its record
// made room for newer ones.
func (o *Operations) KeepLogin(ctx context.Context, by Actor, l fleet.Login) error {
	return o.keepLogin(ctx, func(s *view.Snapshot, onLogins, _ store.Lease) (change, error) {
		if _, ok := s.Logins.Get(l.ID); ok {
			return change{}, nil
		}
		return change{
			guards: []store.Guard{store.Missing(store.RevocationKey(l.ID))},
			writes: append(displaced(s, l.UserID, o.now()), store.CreateOn(onLogins, store.LoginKey(l.ID), l)),
		}, nil
	}, by)
}

func (o *Operations) keepLogin(ctx context.Context, decide func(s *view.Snapshot, onLogins, onNetworks store.Lease) (change, error), by Actor) error {
	ctx = elsewhere(ctx) // the answer has tokens, which nobody keeps
	return InTime(ctx, func(ctx context.Context) error {
		return o.on(ctx, &o.networks, fleet.KnownNetworkLife, func(onNetworks store.Lease) error {
			return o.on(ctx, &o.logins, fleet.LoginLife, func(onLogins store.Lease) error {
				_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) { return decide(s, onLogins, onNetworks) })
				return err
			})
		})
	})
}

// Logins are a user's that have not ended, the newest first.
func Logins(s *view.Snapshot, u *fleet.User, now time.Time) (out []*fleet.Login) {
	for id, l := range s.Logins.All() {
		if _, ended := s.Revocations.Get(id); !ended && l.Of(u, now) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *fleet.Login) int {
		return cmp.Or(b.SignedInAt.Compare(a.SignedInAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// displaced removes the records of a user's logins that make room for one more: those that
// have ended, and the least recently refreshed.
func displaced(s *view.Snapshot, userID string, now time.Time) (out []store.Write) {
	var all []*fleet.Login
	for _, l := range s.Logins.All() {
		if l.UserID == userID {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *fleet.Login) int { return b.LastSeen().Compare(a.LastSeen()) })
	for n, l := range all {
		if (n >= fleet.MaxLogins-1 || !now.Before(l.Ends())) && len(out) < fleet.MaxLogins {
			out = append(out, store.Remove(store.LoginKey(l.ID), l.ModRev))
		}
	}
	return out
}

// RefreshToken is what a refresh token says.
type RefreshToken struct {
	User, Login string
	Serial      int64
}

// errLoginEnded says that a refresh token is not good any more.
var errLoginEnded = errs.New(errs.Unauthenticated, "the login has ended: log in again")

// RefreshLogin is the login with the refresh token that follows the one that was sent: a new
// one, or the same once more within fleet.RefreshGrace. Unauthenticated when the login has
// ended, and when the token was replaced earlier: then the login ends, since two have it.
func (o *Operations) RefreshLogin(ctx context.Context, by Actor, t RefreshToken) (out fleet.Login, err error) {
	ctx = elsewhere(ctx) // the answer has tokens, which nobody keeps
	reused := false
	err = InTime(ctx, func(ctx context.Context) error {
		if l, ok := o.Snapshot().Logins.Get(t.Login); ok && l.Serial < t.Serial { // another gateway is ahead
			if _, err := o.current(ctx); err != nil {
				return err
			}
		}
		return o.on(ctx, &o.logins, fleet.LoginLife, func(lease store.Lease) error {
			_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) {
				u, _ := s.Users.Get(t.User)
				l, ok := s.Logins.Get(t.Login)
				_, ended := s.Revocations.Get(t.Login)
				if !ok || ended || !l.Of(u, o.now()) {
					return change{}, errLoginEnded
				}
				out, reused = *l, false
				switch l.Refresh(t.Serial, o.now()) {
				case fleet.RefreshRotates:
					out = l.Rotated(o.now())
					return change{writes: []store.Write{store.ReplaceOn(lease, store.LoginKey(t.Login), out, l.ModRev)}}, nil
				case fleet.RefreshRepeats:
					return change{}, nil
				case fleet.RefreshReused:
					reused = true
				case fleet.RefreshUnknown:
				}
				return change{}, errLoginEnded
			})
			return err
		})
	})
	if !reused {
		return out, err
	}
	by.User = t.User
	if err := o.endLogin(ctx, by, fleet.Credential{User: t.User, Login: t.Login, Epoch: out.Epoch}, entry{
		action: fleet.ActionRefreshReused, resource: "user", id: t.User, objects: []string{"login/" + t.User},
		details: "a refresh token was used again after it was replaced: the login ends",
	}); err != nil {
		return fleet.Login{}, err
	}
	return fleet.Login{}, errs.New(errs.Unauthenticated, "this refresh token was replaced earlier, so somebody else may have it: the login has ended, log in again")
}

// EndLoginOf ends one login of a user by its id. NotFound when the user has none of that id,
// Denied when the user may more than who asks.
func (o *Operations) EndLoginOf(ctx context.Context, by Actor, user, id string, may []fleet.Permission) error {
	s := o.Snapshot()
	u, err := userAt(s, user, 0)
	if err == nil {
		err = within(s, *u, may)
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(Logins(s, u, o.now()), func(l *fleet.Login) bool { return l.ID == id }) {
		return errs.New(errs.NotFound, "the user %s has no session %s", user, clip(id))
	}
	return o.EndLogin(ctx, by, fleet.Credential{User: user, Login: id, Epoch: u.Epoch})
}

// EndLogins ends all logins of a user, those without a record too. Errors as of EndLoginOf.
func (o *Operations) EndLogins(ctx context.Context, by Actor, user string, may []fleet.Permission) error {
	_, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		u, err := userAt(s, user, 0)
		if err == nil {
			err = within(s, *u, may)
		}
		if err != nil {
			return change{}, err
		}
		next := *u
		next.Epoch++
		return change{
			writes: []store.Write{store.Replace(store.UserKey(user), next, u.ModRev)},
			audit:  entry{action: fleet.ActionLogout, resource: "user", id: user, details: "all logins"},
		}, nil
	})
	return err
}
