package operate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// rootDigits is how much of its hash names a root token.
const rootDigits = 16

// Credential is a token of an instance's own that is good now.
type Credential struct {
	// ID names it, and is no part of it.
	ID       string
	Instance *fleet.Instance
	// IssuedAt is zero while the instance has not begun; ExpiresAt for a root token, which
	// is good while the generation lives.
	IssuedAt, ExpiresAt time.Time
}

// Credentials are all, by the names of instances, of each the root token first.
func (o *Operations) Credentials(s *view.Snapshot) (out []Credential) {
	for _, i := range s.Instances.All() {
		out = append(out, credentialsOf(s, i, o.now())...)
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

// credentialOf is nil when nothing is known of an instance's tokens.
func credentialOf(s *view.Snapshot, id fleet.InstanceID) *fleet.InstanceCredential {
	c, _ := s.Credentials.Get(id)
	return c
}

// IssueCredential notes that an instance gets a short token for the one it sent. It ends the
// short token before: at this gateway at once, at all others as soon as they see the record.
// Unauthenticated when the one it sent is not good for that.
func (o *Operations) IssueCredential(ctx context.Context, sent fleet.OwnToken) (issued fleet.InstanceCredential, err error) {
	_, err = o.mutate(ctx, Actor{}, func(s *view.Snapshot) (change, error) {
		i, _ := s.Instances.Get(sent.Instance)
		known, now := credentialOf(s, sent.Instance), o.now()
		if !sent.Of(i) || !known.Renews(sent, now) {
			return change{}, errs.New(errs.Unauthenticated, "this token was revoked or replaced: send the one of the environment")
		}
		var rev, serial int64
		if known != nil {
			rev = known.ModRev
		}
		if known.About(sent.Root) {
			serial = known.Serial
		}
		issued = fleet.InstanceCredential{
			Instance: sent.Instance, Root: sent.Root, Serial: max(serial, sent.Serial) + 1, TokenID: strings.ToLower(ulid.Make().String()),
			IssuedAt: now, ExpiresAt: now.Add(fleet.ShortTokenLife),
		}
		return change{
			guards: []store.Guard{store.Exists(store.IntentKey(sent.Instance))}, // what is removed takes its record along
			writes: []store.Write{store.Replace(store.CredentialKey(sent.Instance), issued, rev)},
		}, nil
	})
	return issued, err
}

// RevokeCredential ends the token of an id and all others of its instance's generation: who
// has one of them can have the others. NotFound when no good token has the id.
func (o *Operations) RevokeCredential(ctx context.Context, by Actor, id string) error {
	_, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		for _, c := range o.Credentials(s) {
			if c.ID == id {
				return o.revoke(s, by, c.Instance), nil
			}
		}
		return change{}, errs.New(errs.NotFound, "no instance has a token of the id %s: it may have been replaced", clip(id))
	})
	return err
}

// RevokeCredentials ends all tokens of an instance's generation, and returns how many there
// were. NotFound when there is no such instance.
func (o *Operations) RevokeCredentials(ctx context.Context, by Actor, ref string) (i *fleet.Instance, revoked int, err error) {
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		if i, err = find(s, ref); err != nil {
			return change{}, err
		}
		if revoked = len(credentialsOf(s, i, o.now())); revoked == 0 {
			return change{}, nil
		}
		return o.revoke(s, by, i), nil
	})
	return i, revoked, err
}

// revoke ends all tokens of an instance that has one.
func (o *Operations) revoke(s *view.Snapshot, by Actor, i *fleet.Instance) change {
	next, rev := fleet.InstanceCredential{Instance: i.Intent.ID, Root: i.Status.TokenHash}, int64(0)
	if known := credentialOf(s, i.Intent.ID); known != nil {
		if rev = known.ModRev; known.About(next.Root) {
			next.Serial = known.Serial
		}
	}
	next.RevokedAt, next.RevokedBy = o.now(), by.User
	return change{
		guards: []store.Guard{store.Exists(store.IntentKey(i.Intent.ID))},
		writes: []store.Write{store.Replace(store.CredentialKey(i.Intent.ID), next, rev)},
		audit:  entry{action: "credentials.revoke", resource: "instance", id: string(i.Intent.ID), details: i.Intent.Name},
	}
}

// PruneCredentials removes the records of instances that are no more: one that was written
// while they were being removed.
func (o *Operations) PruneCredentials(ctx context.Context) error {
	s := o.Snapshot()
	for id, c := range s.Credentials.All() {
		if _, lives := s.Instances.Get(id); lives {
			continue
		}
		_, err := o.cfg.Store.Commit(ctx, store.Txn{
			Guards: []store.Guard{store.Missing(store.IntentKey(id))},
			Writes: []store.Write{store.Remove(store.CredentialKey(id), c.ModRev)},
		})
		if err != nil && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("operate.PruneCredentials", err)
		}
	}
	return nil
}
