package operate

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// apiTokenRecord is what the audit keeps of an API token: nothing that would find it.
func apiTokenRecord(t fleet.APIToken) any {
	return struct {
		Name      string             `json:"name"`
		User      string             `json:"user"`
		Public    bool               `json:"public,omitempty"`
		Scopes    []fleet.Permission `json:"scopes,omitempty"`
		ExpiresAt time.Time          `json:"expiresAt,omitzero"`
	}{t.Name, t.User, t.Public, t.Scopes, t.ExpiresAt}
}

// CreateAPIToken stores the record of a token as auth.Service.NewToken made it. rev is its
// revision. NotFound when its user is no more.
func (o *Operations) CreateAPIToken(ctx context.Context, by Actor, t fleet.APIToken) (rev int64, err error) {
	return o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		u, ok := s.Users.Get(t.User)
		if !ok || !t.Belongs(u) {
			return change{}, noUser(t.User)
		}
		return change{
			// The user stays while the token is made: who deletes it removes its tokens.
			guards: []store.Guard{store.Unchanged(store.UserKey(u.Username), u.ModRev)},
			writes: []store.Write{store.Create(store.APITokenKey(t.ID), t)},
			audit:  entry{action: "api-token.create", resource: "api-token", id: t.ID, details: t.Name, after: apiTokenRecord(t)},
		}, nil
	})
}

// DeleteAPIToken ends a token everywhere. NotFound when there is none, MovedError when
// ifMatch is not 0 and it is at another revision.
func (o *Operations) DeleteAPIToken(ctx context.Context, by Actor, id string, ifMatch int64) error {
	_, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		t, ok := s.APITokens.Get(id)
		switch {
		case !ok:
			return change{}, ErrNoAPIToken
		case ifMatch != 0 && ifMatch != t.ModRev:
			return change{}, &MovedError{What: "API token " + id, Want: ifMatch, Have: t.ModRev}
		}
		return change{
			writes: []store.Write{store.Remove(store.APITokenKey(id), t.ModRev)},
			audit:  entry{action: "api-token.delete", resource: "api-token", id: id, details: t.Name, before: apiTokenRecord(*t)},
		}, nil
	})
	return err
}

// ErrNoAPIToken says that an API token is not known.
var ErrNoAPIToken = errs.New(errs.NotFound, "there is no such API token")
