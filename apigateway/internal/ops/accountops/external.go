package accountops

import (
	"context"
	"errors"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// admission is the decision about a user whom a login provider has authenticated.
type admission struct {
	// create is true for the first login. Otherwise old is the user's record.
	create bool
	old    *account.User
	role   string
}

// admit decides about a user whom a login provider has authenticated. bySubject is the user who came
// from the provider with this subject, byName the one who has the name; nil for none. It returns Denied
// with an explanation for a user who must not log in.
func admit(x account.ExternalUser, bySubject, byName *account.User, roles []account.GroupRole) (admission, error) {
	role, ok := account.RoleOf(roles, x.Groups)
	switch {
	case !ok && len(x.Groups) == 0:
		return admission{}, errs.New(errs.Denied, "the login provider names no groups of the user %s, so there is no role: an administrator must check oidc.groups-claim and oidc.scopes, or add you to a group", txn.Clip(x.Username))
	case !ok:
		return admission{}, errs.New(errs.Denied, "no group of the user %s gives a role here: an administrator must add you to a group that oidc.roles names, or name one of yours there", txn.Clip(x.Username))
	case bySubject != nil:
		return admission{old: bySubject, role: role}, nil
	case byName != nil && byName.Service:
		return admission{}, errs.New(errs.Denied, "%s is the name of a service account: an administrator must delete that account", byName.Username)
	case byName != nil && byName.Local():
		return admission{}, errs.New(errs.Denied, "there is a local user %s, and a login provider cannot take it over: log in with the password, or an administrator renames or deletes that user", byName.Username)
	case byName != nil:
		return admission{}, errs.New(errs.Denied, "the user %s belongs to another account of a login provider: an administrator must rename or delete that user", byName.Username)
	case !userName.MatchString(x.Username):
		return admission{}, errs.New(errs.Denied, "the login provider's name %q cannot be the name of a user, which has 1 to 32 letters, digits, '.', '_' or '-': an administrator must set oidc.username-claim to another claim", txn.Clip(x.Username))
	}
	return admission{create: true, role: role}, nil
}

// bySubject returns the user who came from a login provider with a subject; nil if no user did.
func bySubject(s *view.Snapshot, issuer, subject string) *account.User {
	for _, u := range s.Users.All() {
		if u.Issuer == issuer && u.Subject == subject {
			return u
		}
	}
	return nil
}

// SignInExternal admits a user whom a login provider has authenticated: it creates the user at the
// first login, and gives the role of the user's groups at each login. Denied when the user must not
// log in; the error says why. Refusals are audited.
func (o *Accounts) SignInExternal(ctx context.Context, by txn.Actor, x account.ExternalUser, roles []account.GroupRole) (out account.User, err error) {
	ctx = txn.WithoutOnce(ctx) // not part of a request that is repeated
	self := by
	self.User = x.Username
	_, err = o.Mutate(ctx, self, func(s *view.Snapshot) (txn.Change, error) {
		named, _ := s.Users.Get(x.Username)
		a, err := admit(x, bySubject(s, x.Issuer, x.Subject), named, roles)
		if err != nil {
			return txn.Change{}, err
		}
		var c txn.Change
		if a.create {
			out, c, err = o.external(s, x, a.role)
		} else {
			out, c, err = updateExternal(s, x, *a.old, a.role)
		}
		return c, err
	})
	switch {
	case err == nil:
		return o.asStored(out), nil
	case errs.Is(err, errs.Invalid): // a role that does not exist
		err = errs.New(errs.Denied, "your groups give a role that does not exist: an administrator must correct oidc.roles: %s", errs.MessageOf(err))
	}
	if errs.Is(err, errs.Denied) || errs.Is(err, errs.Conflict) {
		o.NoteRefusedExternal(ctx, by, x.Username, err)
	}
	return out, err
}

// NoteRefusedExternal audits that a login by a provider was refused. name may be empty.
func (o *Accounts) NoteRefusedExternal(ctx context.Context, by txn.Actor, name string, why error) {
	if err := o.auditRefusal(ctx, by, name, refusal{"provider", "login provider: " + clipped(errs.MessageOf(why))}); err != nil {
		o.Log.Warn("a refused login was not audited", "error", err)
	}
}

// maxRefusal bounds the text of a refusal in the audit, in bytes.
const maxRefusal = 500

func clipped(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxRefusal)], "")
}

// external returns a new user, and the change that creates it.
func (o *Accounts) external(s *view.Snapshot, x account.ExternalUser, role string) (account.User, txn.Change, error) {
	now := o.Now()
	u := account.User{Username: x.Username, Email: mailOf(x), Role: role, Issuer: x.Issuer, Subject: x.Subject, Epoch: now.UnixMicro(), CreatedAt: now}
	if s.Users.Len() >= maxUsers {
		return u, txn.Change{}, errs.New(errs.Exhausted, "there are %d users, the most there may be: an administrator must delete some", maxUsers)
	}
	c := txn.Change{
		Writes: []store.Write{store.Create(keys.User(u.Username), u)},
		Audit:  txn.Entry{Action: "user.create", Resource: "user", ID: u.Username, Details: "first login by " + x.Issuer, After: ShowUser(u)},
	}
	return u, c, giveRole(&c, s, role, auth.AllPermissions())
}

// mailOf returns the address of a user; empty if the provider has none that could be one.
func mailOf(x account.ExternalUser) string {
	if (&UserWrite{Email: &x.Email}).check() != nil {
		return ""
	}
	return x.Email
}

// updateExternal returns a user as the provider describes it now, and the change of the record.
func updateExternal(s *view.Snapshot, x account.ExternalUser, old account.User, role string) (account.User, txn.Change, error) {
	u := old
	u.Role, u.Email = role, mailOf(x)
	if u == old {
		return u, txn.Change{}, nil
	}
	c := txn.Change{Audit: txn.Entry{Action: "user.update", Resource: "user", ID: u.Username, Details: "login by " + x.Issuer, Before: ShowUser(old), After: ShowUser(u)}}
	return u, c, changeUser(&c, s, old, u, auth.AllPermissions())
}

// errGrantUsed says that a login was redeemed before.
var errGrantUsed = errs.New(errs.Unauthenticated, "the code was used before, so another program may have it: the login has ended, begin it again")

// RedeemLogin returns a login by a provider to the client that began it, once. A second call ends
// the login. Unauthenticated when it has ended.
func (o *Accounts) RedeemLogin(ctx context.Context, by txn.Actor, user, login string) (out account.Login, err error) {
	ctx = txn.WithoutOnce(ctx) // the response has tokens and must not be stored
	err = txn.InTime(ctx, func(ctx context.Context) error {
		if _, ok := o.Snapshot().Logins.Get(login); !ok { // another gateway has begun it
			if _, err := o.Current(ctx); err != nil {
				return err
			}
		}
		return o.MutateOnLease(ctx, by, &o.logins, account.LoginLife, func(s *view.Snapshot, lease store.Lease) (txn.Change, error) {
			u, _ := s.Users.Get(user)
			l, ok := s.Logins.Get(login)
			_, ended := s.Revocations.Get(login)
			if !ok || ended || !l.Of(u, o.Now()) {
				return txn.Change{}, errLoginEnded
			}
			out = *l
			if l.Serial != 1 {
				return txn.Change{}, errGrantUsed
			}
			out = l.Rotated(o.Now())
			return txn.Change{Writes: []store.Write{store.ReplaceOn(lease, keys.Login(login), out, l.ModRev)}}, nil
		})
	})
	if !errors.Is(err, errGrantUsed) {
		return out, err
	}
	by.User = user
	if ended := o.endLogin(ctx, by, account.Credential{User: user, Login: login, Epoch: out.Epoch}, txn.Entry{
		Action: account.ActionRefreshReused, Resource: "user", ID: user, Objects: []string{"login/" + user},
		Details: "the code of a login by a provider was used again: the login ends",
	}); ended != nil {
		return account.Login{}, ended
	}
	return account.Login{}, err
}
