package accountops

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// LinkWrite links a user to a player of the game. The zero ID removes the link.
type LinkWrite struct {
	ID   players.PlayerID
	Name string
	// IfMatch is the revision the user must be at; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
	// May are the caller's permissions, as in UserWrite.
	May []account.Permission
}

// LinkPlayer links a user to a player. Invalid when no player has the name, AlreadyExists when
// another user is linked to the player; other errors are those of UpdateUser. It writes nothing
// when nothing changes.
func (o *Accounts) LinkPlayer(ctx context.Context, by txn.Actor, name string, w LinkWrite) (out account.User, err error) {
	if w.ID != "" && (w.Name == "" || len(w.Name) > players.MaxPlayerName || validate.HasControl(w.Name)) {
		return out, errs.Field("name", "must be 1 to %d bytes without control characters", players.MaxPlayerName)
	}
	err = txn.InTime(ctx, func(ctx context.Context) error {
		_, err := o.MutateWithin(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
			u, err := changeable(s, name, w.IfMatch, w.May)
			if err != nil {
				return txn.Change{}, err
			}
			out = *u
			out.MinecraftUUID, out.MinecraftName = w.ID, w.Name
			c := txn.Change{
				Writes: []store.Write{store.Replace(keys.User(name), out, u.ModRev)},
				Audit:  txn.Entry{Action: "user.minecraft", Resource: "user", ID: name, Before: showLink(*u), After: showLink(out)},
			}
			if u.MinecraftUUID != w.ID {
				err = o.relink(ctx, &c, u, w.ID)
			}
			if err != nil || w.DryRun || out == *u {
				return txn.Change{}, err
			}
			return c, nil
		})
		return err
	})
	if err != nil || w.DryRun {
		return out, err
	}
	return o.asStored(out), nil
}

// showLink is what the audit keeps of the link of a user to a player.
func showLink(u account.User) any {
	if u.MinecraftUUID == "" {
		return nil
	}
	return map[string]any{"minecraftUuid": u.MinecraftUUID, "minecraftName": u.MinecraftName}
}

// relink adds to a change the writes that link a user to another player, or to none.
func (o *Accounts) relink(ctx context.Context, c *txn.Change, u *account.User, id players.PlayerID) error {
	if err := o.unlink(ctx, c, u); err != nil || id == "" {
		return err
	}
	link, err := store.Get(ctx, o.Store, keys.PlayerLink(id))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap("operate.relink", err)
	}
	s, err := o.View.WaitRev(ctx, link.ModRev)
	if err != nil {
		return errs.Wrap("operate.relink", err)
	}
	for name, other := range s.Users.All() {
		if other.MinecraftUUID == id && name != u.Username {
			return errs.New(errs.AlreadyExists, "the player %s is linked to another user", id)
		}
	}
	// An existing link has no user anymore: an older gateway without links deleted the user.
	c.Writes = append(c.Writes, store.Replace(keys.PlayerLink(id), account.PlayerLink{UserID: u.ID(), At: o.Now()}, link.ModRev))
	return nil
}

// unlink adds to a change the removal of a user's link to a player.
func (o *Accounts) unlink(ctx context.Context, c *txn.Change, u *account.User) error {
	if u.MinecraftUUID == "" {
		return nil
	}
	link, err := store.Get(ctx, o.Store, keys.PlayerLink(u.MinecraftUUID))
	switch {
	case errs.Is(err, errs.NotFound):
		return nil
	case err != nil:
		return errs.Wrap("operate.unlink", err)
	case link.UserID == u.ID():
		c.Writes = append(c.Writes, store.Remove(keys.PlayerLink(u.MinecraftUUID), link.ModRev))
	}
	return nil
}
