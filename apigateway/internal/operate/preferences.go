package operate

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Preferences are a user's as they are stored, with revision 0 when there are none. NotFound
// when there is no such user.
func (o *Operations) Preferences(ctx context.Context, name string) (out fleet.Preferences, err error) {
	u, err := userAt(o.Snapshot(), name, 0)
	if err != nil {
		return out, err
	}
	err = InTime(ctx, func(ctx context.Context) error {
		out, err = preferencesOf(ctx, o.cfg.Store, u)
		return err
	})
	return out, err
}

func preferencesOf(ctx context.Context, c *store.Client, u *fleet.User) (fleet.Preferences, error) {
	out, err := store.Get(ctx, c, store.PreferencesKey(u.ID()))
	if errs.Is(err, errs.NotFound) {
		return fleet.Preferences{}, nil
	}
	return out, errs.Wrap("operate.preferencesOf", err)
}

// PreferencesWrite asks for a user's preferences to be these.
type PreferencesWrite struct {
	Value map[string]json.RawMessage
	// IfMatch is the revision they must be at; 0 accepts any.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
	// May are the permissions of who asks, as in UserWrite.
	May []fleet.Permission
}

// WritePreferences replaces a user's preferences, and returns their revision. NotFound when
// there is no such user, Denied when that one may more than who asks, MovedError when IfMatch
// does not hold. What changes nothing writes nothing.
func (o *Operations) WritePreferences(ctx context.Context, by Actor, name string, w PreferencesWrite) (rev int64, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		made, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) {
			u, err := userAt(s, name, 0)
			if err == nil {
				err = within(s, *u, w.May)
			}
			if err != nil {
				return change{}, err
			}
			old, err := preferencesOf(ctx, o.cfg.Store, u)
			if err != nil {
				return change{}, err
			}
			rev = old.ModRev
			if w.IfMatch != 0 && w.IfMatch != rev {
				return change{}, &MovedError{What: "preferences of " + name, Want: w.IfMatch, Have: rev}
			}
			if w.DryRun || rev != 0 && reflect.DeepEqual(old.Value, w.Value) {
				return change{}, nil
			}
			rev = 0 // that of the commit
			return change{
				guards: []store.Guard{store.Unchanged(store.UserKey(name), u.ModRev)},
				writes: []store.Write{store.Replace(store.PreferencesKey(u.ID()), fleet.Preferences{Value: w.Value, At: o.now()}, old.ModRev)},
				audit:  entry{action: "user.preferences", resource: "user", id: name},
			}, nil
		})
		if rev == 0 && !w.DryRun {
			rev = made
		}
		return err
	})
	return rev, err
}

// forgetAccount adds what it takes to remove what is kept of a user beside their record, and
// has the change hold only as long as there is nothing else.
func (c *change) forgetAccount(ctx context.Context, o *Operations, u *fleet.User) error {
	kept, err := preferencesOf(ctx, o.cfg.Store, u)
	if err != nil {
		return err
	}
	if kept.ModRev == 0 {
		c.guards = append(c.guards, store.Missing(store.PreferencesKey(u.ID())))
	} else {
		c.writes = append(c.writes, store.Remove(store.PreferencesKey(u.ID()), kept.ModRev))
	}
	return c.unlink(ctx, o, u)
}
