package operate

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// AvatarWrite says which picture a user shows; the zero Avatar that it is none. Its file must
// be there already.
type AvatarWrite struct {
	fleet.Avatar
	// UserID is whose file it is; somebody else who is called so by now is not it.
	UserID string
	// IfMatch is the revision the user must be at; 0 accepts any.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
	// May are the permissions of who asks, as in UserWrite.
	May []fleet.Permission
}

// WriteAvatar notes which picture a user shows, and returns which it was before. Errors as of
// UpdateUser. What changes nothing writes nothing.
func (o *Operations) WriteAvatar(ctx context.Context, by Actor, name string, w AvatarWrite) (out fleet.User, before fleet.Avatar, err error) {
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		u, err := userAt(s, name, w.IfMatch)
		if err == nil && u.ID() != w.UserID {
			err = noUser(name)
		}
		if err == nil {
			err = within(s, *u, w.May)
		}
		if err != nil {
			return change{}, err
		}
		out, before = *u, u.Avatar
		out.Avatar = w.Avatar
		if w.DryRun || out == *u {
			return change{}, nil
		}
		return change{
			writes: []store.Write{store.Replace(store.UserKey(name), out, u.ModRev)},
			audit:  entry{action: "user.avatar", resource: "user", id: name, before: showAvatar(before), after: showAvatar(w.Avatar)},
		}, nil
	})
	if err != nil || w.DryRun {
		return out, before, err
	}
	return o.asStored(out), before, nil
}

// showAvatar is what the audit keeps of a picture.
func showAvatar(a fleet.Avatar) any {
	if a == (fleet.Avatar{}) {
		return nil
	}
	return map[string]any{"sha256": a.SHA256, "type": a.Type}
}
