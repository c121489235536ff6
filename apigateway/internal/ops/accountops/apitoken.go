package accountops

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// apiTokenRecord is what the audit keeps of an API token: nothing that helps to guess it.
func apiTokenRecord(t account.APIToken) any {
	return struct {
		Name      string               `json:"name"`
		User      string               `json:"user"`
		Public    bool                 `json:"public,omitempty"`
		Scopes    []account.Permission `json:"scopes,omitempty"`
		ExpiresAt time.Time            `json:"expiresAt,omitzero"`
	}{t.Name, t.User, t.Public, t.Scopes, t.ExpiresAt}
}

// CreateAPIToken stores the record of a token that auth.Service.NewToken made, and returns its
// revision. NotFound when its user was deleted, Denied for a token of another account that may do more
// than the caller, whose permissions are may.
func (o *Accounts) CreateAPIToken(ctx context.Context, by txn.Actor, t account.APIToken, may []account.Permission) (rev int64, err error) {
	return o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		u, ok := s.Users.Get(t.User)
		if !ok || !t.Belongs(u) {
			return txn.Change{}, noUser(t.User)
		}
		if u.Username != by.User {
			if err := within(s, *u, may); err != nil {
				return txn.Change{}, err
			}
		}
		return txn.Change{
			// Guard the user, because deleting a user deletes its tokens.
			Guards: []store.Guard{store.Unchanged(keys.User(u.Username), u.ModRev)},
			Writes: []store.Write{store.Create(keys.APIToken(t.ID), t)},
			Audit:  txn.Entry{Action: "api-token.create", Resource: "api-token", ID: t.ID, Details: t.Name, After: apiTokenRecord(t)},
		}, nil
	})
}

// DeleteAPIToken revokes a token on all gateways. NotFound when it does not exist, MovedError when
// ifMatch is not 0 and not its revision.
func (o *Accounts) DeleteAPIToken(ctx context.Context, by txn.Actor, id string, ifMatch int64) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		t, ok := s.APITokens.Get(id)
		switch {
		case !ok:
			return txn.Change{}, ErrNoAPIToken
		case ifMatch != 0 && ifMatch != t.ModRev:
			return txn.Change{}, &txn.MovedError{What: "API token " + id, Want: ifMatch, Have: t.ModRev}
		}
		return txn.Change{
			Writes: []store.Write{store.Remove(keys.APIToken(id), t.ModRev)},
			Audit:  txn.Entry{Action: "api-token.delete", Resource: "api-token", ID: id, Details: t.Name, Before: apiTokenRecord(*t)},
		}, nil
	})
	return err
}

// ErrNoAPIToken says that an API token is not known.
var ErrNoAPIToken = errs.New(errs.NotFound, "there is no such API token")
