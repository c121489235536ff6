package operate

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// LinkWrite says which player of the game a user is; the zero ID that they are none.
type LinkWrite struct {
	ID   fleet.PlayerID
	Name string
	// IfMatch is the revision the user must be at; 0 accepts any.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
	// May are the permissions of who asks, as in UserWrite.
	May []fleet.Permission
}

// LinkPlayer notes which player a user is. Invalid when nobody has such a name, AlreadyExists
// when another user is that player; otherwise errors as of UpdateUser. What changes nothing
// writes nothing.
func (o *Operations) LinkPlayer(ctx context.Context, by Actor, name string, w LinkWrite) (out fleet.User, err error) {
	if w.ID != "" && (w.Name == "" || len(w.Name) > fleet.MaxPlayerName || fleet.HasControl(w.Name)) {
		return out, errs.Field("name", "must be 1 to %d bytes without control characters", fleet.MaxPlayerName)
	}
	err = InTime(ctx, func(ctx context.Context) error {
		_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) {
			u, err := userAt(s, name, w.IfMatch)
			if err == nil {
				err = within(s, *u, w.May)
			}
			if err != nil {
				return change{}, err
			}
			out = *u
			out.MinecraftUUID, out.MinecraftName = w.ID, w.Name
			c := change{
				writes: []store.Write{store.Replace(store.UserKey(name), out, u.ModRev)},
				audit:  entry{action: "user.minecraft", resource: "user", id: name, before: showLink(*u), after: showLink(out)},
			}
			if u.MinecraftUUID != w.ID {
				err = c.relink(ctx, o, u, w.ID)
			}
			if err != nil || w.DryRun || out == *u {
				return change{}, err
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

// showLink is what the audit keeps of which player a user is.
func showLink(u fleet.User) any {
	if u.MinecraftUUID == "" {
		return nil
	}
	return map[string]any{"minecraftUuid": u.MinecraftUUID, "minecraftName": u.MinecraftName}
}

// relink adds what it takes to make a user one player instead of another, or of none.
func (c *change) relink(ctx context.Context, o *Operations, u *fleet.User, id fleet.PlayerID) error {
	if err := c.unlink(ctx, o, u); err != nil || id == "" {
		return err
	}
	link, err := store.Get(ctx, o.cfg.Store, store.PlayerLinkKey(id))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap("operate.relink", err)
	}
	s, err := o.cfg.View.WaitRev(ctx, link.ModRev)
	if err != nil {
		return errs.Wrap("operate.relink", err)
	}
	for name, other := range s.Users.All() {
		if other.MinecraftUUID == id && name != u.Username {
			return errs.New(errs.AlreadyExists, "the player %s is linked to another user", id)
		}
	}
	// What is there is of nobody: a gateway that knew nothing of links deleted its user.
	c.writes = append(c.writes, store.Replace(store.PlayerLinkKey(id), fleet.PlayerLink{UserID: u.ID(), At: o.now()}, link.ModRev))
	return nil
}

// unlink adds the removal of the record of which player a user is.
func (c *change) unlink(ctx context.Context, o *Operations, u *fleet.User) error {
	if u.MinecraftUUID == "" {
		return nil
	}
	link, err := store.Get(ctx, o.cfg.Store, store.PlayerLinkKey(u.MinecraftUUID))
	switch {
	case errs.Is(err, errs.NotFound):
		return nil
	case err != nil:
		return errs.Wrap("operate.unlink", err)
	case link.UserID == u.ID():
		c.writes = append(c.writes, store.Remove(store.PlayerLinkKey(u.MinecraftUUID), link.ModRev))
	}
	return nil
}
