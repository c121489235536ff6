package accountops

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Preferences returns a user's stored preferences, with revision 0 when none are stored. NotFound
// when the user does not exist.
func (o *Accounts) Preferences(ctx context.Context, name string) (out account.Preferences, err error) {
	u, err := userAt(o.Snapshot(), name, 0)
	if err != nil {
		return out, err
	}
	err = txn.InTime(ctx, func(ctx context.Context) error {
		out, err = preferencesOf(ctx, o.Store, u)
		return err
	})
	return out, err
}

func preferencesOf(ctx context.Context, c *store.Client, u *account.User) (account.Preferences, error) {
	out, err := store.Get(ctx, c, keys.Preferences(u.ID()))
	if errs.Is(err, errs.NotFound) {
		return account.Preferences{}, nil
	}
	return out, errs.Wrap("operate.preferencesOf", err)
}

// PreferencesWrite replaces the preferences of a user.
type PreferencesWrite struct {
	Value map[string]json.RawMessage
	// IfMatch is the revision the preferences must be at; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
	// May are the caller's permissions, as in UserWrite.
	May []account.Permission
}

// WritePreferences replaces a user's preferences, and returns their revision. NotFound when the
// user does not exist, Denied when the user has more permissions than the caller, MovedError when
// IfMatch does not match. It writes nothing when nothing changes.
func (o *Accounts) WritePreferences(ctx context.Context, by txn.Actor, name string, w PreferencesWrite) (rev int64, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		made, err := o.MutateWithin(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
			u, err := changeable(s, name, 0, w.May)
			if err != nil {
				return txn.Change{}, err
			}
			old, err := preferencesOf(ctx, o.Store, u)
			if err != nil {
				return txn.Change{}, err
			}
			rev = old.ModRev
			if w.IfMatch != 0 && w.IfMatch != rev {
				return txn.Change{}, &txn.MovedError{What: "preferences of " + name, Want: w.IfMatch, Have: rev}
			}
			if w.DryRun || rev != 0 && reflect.DeepEqual(old.Value, w.Value) {
				return txn.Change{}, nil
			}
			rev = 0 // set after the commit
			return txn.Change{
				Guards: []store.Guard{store.Unchanged(keys.User(name), u.ModRev)},
				Writes: []store.Write{store.Replace(keys.Preferences(u.ID()), account.Preferences{Value: w.Value, At: o.Now()}, old.ModRev)},
				Audit:  txn.Entry{Action: "user.preferences", Resource: "user", ID: name},
			}, nil
		})
		if rev == 0 && !w.DryRun {
			rev = made
		}
		return err
	})
	return rev, err
}

// forgetAccount adds to a change the removal of a user's other records. The change fails when one
// of them changes meanwhile.
func (o *Accounts) forgetAccount(ctx context.Context, c *txn.Change, u *account.User) error {
	kept, err := preferencesOf(ctx, o.Store, u)
	if err != nil {
		return err
	}
	if kept.ModRev == 0 {
		c.Guards = append(c.Guards, store.Missing(keys.Preferences(u.ID())))
	} else {
		c.Writes = append(c.Writes, store.Remove(keys.Preferences(u.ID()), kept.ModRev))
	}
	if f, ok := o.Snapshot().Factors.Get(u.ID()); ok {
		c.Writes = append(c.Writes, store.Remove(keys.Factor(u.ID()), f.ModRev))
	} else {
		c.Guards = append(c.Guards, store.Missing(keys.Factor(u.ID())))
	}
	return o.unlink(ctx, c, u)
}
