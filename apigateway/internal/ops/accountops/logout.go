package accountops

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// maxEnded limits the separately revoked logins of a user.
	maxEnded = 64
	// afterwards is how long a revocation is kept after the last token of the login has expired. A
	// gateway that learns late of the revocation may still have issued a token.
	afterwards = time.Hour
	// revocationsTogether is how long revocations share one lease.
	revocationsTogether = time.Hour
)

// EndLogin revokes a login and all its tokens on every gateway. When a user has too many revoked
// logins, it revokes all logins of the user with a single record.
func (o *Accounts) EndLogin(ctx context.Context, by txn.Actor, login account.Credential) error {
	return o.endLogin(ctx, by, login, txn.Entry{Action: account.ActionLogout, Resource: "user", ID: login.User})
}

// endLogin is EndLogin with an entry that says why.
func (o *Accounts) endLogin(ctx context.Context, by txn.Actor, login account.Credential, why txn.Entry) error {
	err := o.MutateOnLease(ctx, by, &o.revocations, o.longestSession()+afterwards, func(s *view.Snapshot, lease store.Lease) (txn.Change, error) {
		u, ok := s.Users.Get(login.User)
		_, ended := s.Revocations.Get(login.Login)
		if !ok || u.Epoch != login.Epoch || ended {
			return txn.Change{}, nil
		}
		c := txn.Change{Audit: why}
		if l, ok := s.Logins.Get(login.Login); ok {
			c.Writes = append(c.Writes, store.Remove(keys.Login(l.ID), l.ModRev))
		}
		endLoginIn(&c, s, u, func(r account.Revocation) store.Write {
			return store.CreateOn(lease, keys.Revocation(login.Login), r)
		}, o.Now())
		return c, nil
	})
	return errs.Wrap("operate.EndLogin", err)
}

// longestSession returns the longest lifetime of a token that may still be valid, according to the
// present settings and their kept versions.
func (o *Accounts) longestSession() time.Duration {
	longest := max(auth.SessionTTL, o.deps.Settings().Session)
	for _, v := range o.Snapshot().ConfigVersions.All() {
		if minutes := v.Patch.SessionMinutes; minutes != nil {
			longest = max(longest, time.Duration(*minutes)*time.Minute)
		}
	}
	return longest
}

// endLoginIn adds to a change the writes that end one login of a user, or all of them.
func endLoginIn(c *txn.Change, s *view.Snapshot, u *account.User, end func(account.Revocation) store.Write, now time.Time) {
	ended := endedOf(s, u.Username)
	if len(ended) < maxEnded {
		c.Writes = append(c.Writes, end(account.Revocation{User: u.Username, At: now}))
		return
	}
	next := *u
	next.Epoch++
	c.Audit.Details = "all logins: there were many that had ended"
	c.Writes = append(c.Writes, store.Replace(keys.User(u.Username), next, u.ModRev))
	for login, r := range ended {
		c.Writes = append(c.Writes, store.Remove(keys.Revocation(login), r.ModRev))
	}
}

// endedOf returns the revoked logins of a user that have not expired, by id. It returns at most as
// many as one transaction can remove.
func endedOf(s *view.Snapshot, user string) map[string]*account.Revocation {
	out := map[string]*account.Revocation{}
	for login, r := range s.Revocations.All() {
		if r.User == user && len(out) < maxEnded {
			out[login] = r
		}
	}
	return out
}
