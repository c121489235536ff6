package instanceops

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// rootDigits is the length of the id of a root token, a prefix of the token's hash.
const rootDigits = 16

// Credential is a valid token of an instance.
type Credential struct {
	// ID identifies the token and reveals no part of it.
	ID       string
	Instance *fleet.Instance
	// IssuedAt is zero until the instance starts. ExpiresAt is zero for a root token, which is valid
	// for the whole generation.
	IssuedAt, ExpiresAt time.Time
}

// Credentials returns all valid tokens by name of their instance, each instance's root token first.
func (o *Instances) Credentials(s *view.Snapshot) (out []Credential) {
	for _, i := range s.Instances.All() {
		out = append(out, credentialsOf(s, i, o.Now())...)
	}
	slices.SortStableFunc(out, func(a, b Credential) int {
		return cmp.Or(cmp.Compare(a.Instance.Intent.Name, b.Instance.Intent.Name), cmp.Compare(a.Instance.Intent.ID, b.Instance.Intent.ID))
	})
	return out
}

func credentialsOf(s *view.Snapshot, i *fleet.Instance, now time.Time) []Credential {
	if i.Status == nil || i.Status.TokenHash == "" || i.Terminal() {
		return nil
	}
	root, known := i.Status.TokenHash, credentialOf(s, i.Intent.ID)
	if known.Revoked(root) {
		return nil
	}
	out := []Credential{{ID: root[:min(len(root), rootDigits)], Instance: i, IssuedAt: i.Status.StartedAt}}
	if known.About(root) && now.Before(known.ExpiresAt) {
		out = append(out, Credential{ID: known.TokenID, Instance: i, IssuedAt: known.IssuedAt, ExpiresAt: known.ExpiresAt})
	}
	return out
}

// credentialOf returns the record of an instance's tokens, or nil.
func credentialOf(s *view.Snapshot, id fleet.InstanceID) *account.InstanceCredential {
	c, _ := s.Credentials.Get(id)
	return c
}

// IssueCredential records that an instance exchanges a token for a new short-lived one. It revokes
// the previous short-lived token: at this gateway at once, at others when they see the record.
// Unauthenticated when the sent token is not valid for that.
func (o *Instances) IssueCredential(ctx context.Context, sent account.OwnToken) (issued account.InstanceCredential, err error) {
	_, err = o.Mutate(ctx, txn.Actor{}, func(s *view.Snapshot) (txn.Change, error) {
		i, _ := s.Instances.Get(sent.Instance)
		known, now := credentialOf(s, sent.Instance), o.Now()
		if !sent.Of(i) || !known.Renews(sent, now) {
			return txn.Change{}, errs.New(errs.Unauthenticated, "this token was revoked or replaced: send the one of the environment")
		}
		var rev, serial int64
		if known != nil {
			rev = known.ModRev
		}
		if known.About(sent.Root) {
			serial = known.Serial
		}
		issued = account.InstanceCredential{
			Instance: sent.Instance, Root: sent.Root, Serial: max(serial, sent.Serial) + 1, TokenID: strings.ToLower(ulid.Make().String()),
			IssuedAt: now, ExpiresAt: now.Add(account.ShortTokenLife),
		}
		return txn.Change{
			Guards: []store.Guard{store.Exists(keys.Intent(sent.Instance))}, // deleting the instance deletes its credential
			Writes: []store.Write{store.Replace(keys.Credential(sent.Instance), issued, rev)},
		}, nil
	})
	return issued, err
}

// RevokeCredential revokes the token with an id and all others of its instance's generation,
// because the owner of one can obtain the others. NotFound when no valid token has the id.
func (o *Instances) RevokeCredential(ctx context.Context, by txn.Actor, id string) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		for _, c := range o.Credentials(s) {
			if c.ID == id {
				return o.revoke(s, by, c.Instance), nil
			}
		}
		return txn.Change{}, errs.New(errs.NotFound, "no instance has a token of the id %s: it may have been replaced", txn.Clip(id))
	})
	return err
}

// RevokeCredentials revokes all tokens of an instance's generation, and returns their number.
// NotFound when the instance does not exist.
func (o *Instances) RevokeCredentials(ctx context.Context, by txn.Actor, ref string) (i *fleet.Instance, revoked int, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		if i, err = find(s, ref); err != nil {
			return txn.Change{}, err
		}
		if revoked = len(credentialsOf(s, i, o.Now())); revoked == 0 {
			return txn.Change{}, nil
		}
		return o.revoke(s, by, i), nil
	})
	return i, revoked, err
}

// revoke returns the change that revokes all tokens of an instance.
func (o *Instances) revoke(s *view.Snapshot, by txn.Actor, i *fleet.Instance) txn.Change {
	next, rev := account.InstanceCredential{Instance: i.Intent.ID, Root: i.Status.TokenHash}, int64(0)
	if known := credentialOf(s, i.Intent.ID); known != nil {
		if rev = known.ModRev; known.About(next.Root) {
			next.Serial = known.Serial
		}
	}
	next.RevokedAt, next.RevokedBy = o.Now(), by.User
	return txn.Change{
		Guards: []store.Guard{store.Exists(keys.Intent(i.Intent.ID))},
		Writes: []store.Write{store.Replace(keys.Credential(i.Intent.ID), next, rev)},
		Audit:  txn.Entry{Action: "credentials.revoke", Resource: "instance", ID: string(i.Intent.ID), Details: i.Intent.Name},
	}
}

// PruneCredentials removes records of removed instances, which were written while the instance was
// being removed.
func (o *Instances) PruneCredentials(ctx context.Context) error {
	s := o.Snapshot()
	for id, c := range s.Credentials.All() {
		if _, lives := s.Instances.Get(id); lives {
			continue
		}
		_, err := o.Store.Commit(ctx, store.Txn{
			Guards: []store.Guard{store.Missing(keys.Intent(id))},
			Writes: []store.Write{store.Remove(keys.Credential(id), c.ModRev)},
		})
		if err != nil && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("operate.PruneCredentials", err)
		}
	}
	return nil
}
