package accountops

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// AvatarWrite sets a user's picture, whose file must exist already. The zero Avatar removes the
// picture.
type AvatarWrite struct {
	account.Avatar
	// UserID is the user that the avatar belongs to. The write fails if the name now belongs to another
	// user.
	UserID string
	// IfMatch is the revision the user must be at; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
	// May are the caller's permissions, as in UserWrite.
	May []account.Permission
}

// WriteAvatar sets a user's picture, and returns the picture before. Errors are those of
// UpdateUser. It writes nothing when nothing changes.
func (o *Accounts) WriteAvatar(ctx context.Context, by txn.Actor, name string, w AvatarWrite) (out account.User, before account.Avatar, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		u, err := userAt(s, name, w.IfMatch)
		if err == nil && u.ID() != w.UserID {
			err = noUser(name)
		}
		if err == nil {
			err = within(s, *u, w.May)
		}
		if err != nil {
			return txn.Change{}, err
		}
		out, before = *u, u.Avatar
		out.Avatar = w.Avatar
		if w.DryRun || out == *u {
			return txn.Change{}, nil
		}
		return txn.Change{
			Writes: []store.Write{store.Replace(keys.User(name), out, u.ModRev)},
			Audit:  txn.Entry{Action: "user.avatar", Resource: "user", ID: name, Before: showAvatar(before), After: showAvatar(w.Avatar)},
		}, nil
	})
	if err != nil || w.DryRun {
		return out, before, err
	}
	return o.asStored(out), before, nil
}

// showAvatar is what the audit keeps of a picture.
func showAvatar(a account.Avatar) any {
	if a == (account.Avatar{}) {
		return nil
	}
	return map[string]any{"sha256": a.SHA256, "type": a.Type}
}
