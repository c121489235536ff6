package operate

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// maxEnded bounds the ended logins of one user that are kept apart.
	maxEnded = 64
	// afterwards is how long an ended login is known after the last of its tokens has expired:
	// a gateway that had not heard of the end may have made one a little later.
	afterwards = time.Hour
	// revocationsTogether is how long ended logins are put on one lease.
	revocationsTogether = time.Hour
)

// EndLogin ends a login with all its tokens, on every gateway. When the user has ended too
// many, all the others end too, and none of them is kept apart any more. One that has ended
// already stays so.
func (o *Operations) EndLogin(ctx context.Context, by Actor, login fleet.Credential) error {
	return o.endLogin(ctx, by, login, entry{action: fleet.ActionLogout, resource: "user", id: login.User})
}

// endLogin is EndLogin with an entry that says why.
func (o *Operations) endLogin(ctx context.Context, by Actor, login fleet.Credential, why entry) error {
	return InTime(ctx, func(ctx context.Context) error {
		return o.on(ctx, &o.revocations, o.longestSession()+afterwards, func(lease store.Lease) error {
			_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) {
				u, ok := s.Users.Get(login.User)
				_, ended := s.Revocations.Get(login.Login)
				if !ok || u.Epoch != login.Epoch || ended {
					return change{}, nil
				}
				c := change{audit: why}
				if l, ok := s.Logins.Get(login.Login); ok {
					c.writes = append(c.writes, store.Remove(store.LoginKey(l.ID), l.ModRev))
				}
				c.endLogin(s, u, func(r fleet.Revocation) store.Write {
					return store.CreateOn(lease, store.RevocationKey(login.Login), r)
				}, o.now())
				return c, nil
			})
			return errs.Wrap("operate.EndLogin", err)
		})
	})
}

// longestSession is how long a token may be good for that was made lately: as the settings
// say now, or said in a version that is kept.
func (o *Operations) longestSession() time.Duration {
	longest := max(auth.SessionTTL, o.cfg.Settings().Session)
	for _, v := range o.Snapshot().ConfigVersions.All() {
		if minutes := v.Patch.SessionMinutes; minutes != nil {
			longest = max(longest, time.Duration(*minutes)*time.Minute)
		}
	}
	return longest
}

// endLogin adds what it takes to end a login of a user, or all of them.
func (c *change) endLogin(s *view.Snapshot, u *fleet.User, end func(fleet.Revocation) store.Write, now time.Time) {
	ended := endedOf(s, u.Username)
	if len(ended) < maxEnded {
		c.writes = append(c.writes, end(fleet.Revocation{User: u.Username, At: now}))
		return
	}
	next := *u
	next.Epoch++
	c.audit.details = "all logins: there were many that had ended"
	c.writes = append(c.writes, store.Replace(store.UserKey(u.Username), next, u.ModRev))
	for login, r := range ended {
		c.writes = append(c.writes, store.Remove(store.RevocationKey(login), r.ModRev))
	}
}

// endedOf are the logins of a user that were ended and have not expired, by their ids: as
// many as a transaction takes away, and no more.
func endedOf(s *view.Snapshot, user string) map[string]*fleet.Revocation {
	out := map[string]*fleet.Revocation{}
	for login, r := range s.Revocations.All() {
		if r.User == user && len(out) < maxEnded {
			out[login] = r
		}
	}
	return out
}
