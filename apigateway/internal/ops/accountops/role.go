package accountops

import (
	"context"
	"regexp"
	"slices"
	"strconv"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxRoles bounds the roles there may be, those built-in ones included that were changed.
const maxRoles = 100

var roleName = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,31}$`)

// RoleWrite creates a role or replaces its permissions.
type RoleWrite struct {
	Name        string // in upper case
	Permissions []account.Permission
	// Create requires that the role does not exist.
	Create bool
	// IfMatch is the revision it must be at; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
	// May are the caller's permissions. The role must not have others.
	May []account.Permission
}

// WriteRole creates or changes a role. The change applies at once to all users who have it. Invalid
// names the wrong field, Denied says which permission the caller lacks, AlreadyExists and NotFound
// according to Create, MovedError when IfMatch does not match. It writes nothing when nothing
// changes.
func (o *Accounts) WriteRole(ctx context.Context, by txn.Actor, w RoleWrite) (out auth.Role, err error) {
	if err := w.normalize(); err != nil {
		return out, err
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := w.target(s)
		if err != nil {
			return txn.Change{}, err
		}
		out = auth.Role{Name: w.Name, Permissions: w.Permissions, BuiltIn: old.BuiltIn, ModRev: old.ModRev}
		if w.DryRun || !w.Create && slices.Equal(ordered(old.Permissions), w.Permissions) {
			return txn.Change{}, nil
		}
		write := store.Replace(keys.Role(w.Name), account.Role{Name: w.Name, Permissions: w.Permissions, Edition: account.PermissionEdition, By: by.User, At: o.Now()}, old.ModRev)
		if old.BuiltIn && old.ModRev != 0 && slices.Equal(ordered(auth.BuiltInPermissions(w.Name)), w.Permissions) {
			write = store.Remove(keys.Role(w.Name), old.ModRev) // back to the built-in role, which later versions may extend
		}
		c := txn.Change{
			Writes: []store.Write{write},
			Audit:  txn.Entry{Action: "role.update", Resource: "role", ID: w.Name, Before: RolePermissions(old), After: RolePermissions(out)},
		}
		if w.Create {
			c.Audit.Action, c.Audit.Before = "role.create", nil
		}
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	if now, ok := auth.RoleOf(o.Snapshot(), w.Name); ok {
		out = now
	}
	return out, nil
}

// RolePermissions is what the audit keeps of a role.
func RolePermissions(r auth.Role) any {
	return map[string]any{"permissions": r.Permissions}
}

// normalize checks what is wanted by itself, and puts the permissions in order.
func (w *RoleWrite) normalize() error {
	if !roleName.MatchString(w.Name) {
		return errs.Field("name", "must be 1 to 32 of A-Z, 0-9 and _ and begin with a letter; it is %q", txn.Clip(w.Name))
	}
	for n, p := range w.Permissions {
		if !auth.Known(p) {
			return errs.Field("permissions["+strconv.Itoa(n)+"]", "%q is no permission; the role %s shows all there are but %s", txn.Clip(string(p)), auth.RoleAdmin, auth.ClusterManage)
		}
	}
	w.Permissions = ordered(w.Permissions)
	return nil
}

// ordered returns permissions sorted and without duplicates.
func ordered(permissions []account.Permission) []account.Permission {
	out := slices.Clone(permissions)
	slices.Sort(out)
	return slices.Compact(out)
}

// target returns the role to change. A new role has no permissions.
func (w *RoleWrite) target(s *view.Snapshot) (auth.Role, error) {
	old, ok := auth.RoleOf(s, w.Name)
	switch {
	case w.Create && ok:
		return old, errs.New(errs.AlreadyExists, "there is a role %s already", w.Name)
	case w.Create && s.Roles.Len() >= maxRoles:
		return old, errs.New(errs.Exhausted, "there are %d roles, the most there may be: delete some", maxRoles)
	case !w.Create && !ok:
		return old, noRole(w.Name)
	case auth.Fixed(w.Name):
		return old, errs.New(errs.Denied, "what the role %s may do cannot be changed", w.Name)
	case w.IfMatch != 0 && w.IfMatch != old.ModRev:
		return old, &txn.MovedError{What: "role " + w.Name, Want: w.IfMatch, Have: old.ModRev}
	}
	if p, ok := beyond(w.May, w.Permissions); ok {
		return old, errs.New(errs.Denied, "you lack the permission %s and so cannot give it to a role", p)
	}
	return old, mayTouch(old, w.May)
}

// mayTouch returns Denied when the role has a permission that the caller lacks.
func mayTouch(r auth.Role, may []account.Permission) error {
	if p, ok := beyond(may, r.Permissions); ok {
		return errs.New(errs.Denied, "you cannot change the role %s: it has the permission %s, which you lack", r.Name, p)
	}
	return nil
}

func noRole(name string) error { return errs.New(errs.NotFound, "there is no role %s", txn.Clip(name)) }

// DeleteRole removes a role. NotFound when it does not exist, Denied when it is built in, Conflict
// when users or bindings have it, MovedError when ifMatch is not 0 and not its revision. With dryRun it only
// checks. may is as in RoleWrite.
func (o *Accounts) DeleteRole(ctx context.Context, by txn.Actor, name string, may []account.Permission, ifMatch int64, dryRun bool) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		_, err := o.MutateWithin(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
			role, err := deletable(s, name, may, ifMatch)
			if err != nil || dryRun {
				return txn.Change{}, err
			}
			c := txn.Change{
				Writes: []store.Write{store.Remove(keys.Role(name), role.ModRev)},
				Audit:  txn.Entry{Action: "role.delete", Resource: "role", ID: name, Before: RolePermissions(role)},
			}
			c.DropApplied(s, applied.Role, name)
			err = o.withoutHolders(ctx, &c, name)
			return c, err
		})
		return err
	})
}

// deletable returns a role that the caller may delete according to a snapshot.
func deletable(s *view.Snapshot, name string, may []account.Permission, ifMatch int64) (auth.Role, error) {
	role, ok := auth.RoleOf(s, name)
	switch {
	case !ok:
		return role, noRole(name)
	case role.BuiltIn:
		return role, errs.New(errs.Denied, "the role %s is built in and cannot be deleted", name)
	case ifMatch != 0 && ifMatch != role.ModRev:
		return role, &txn.MovedError{What: "role " + name, Want: ifMatch, Have: role.ModRev}
	}
	if err := held(s, name); err != nil {
		return role, err
	}
	return role, mayTouch(role, may)
}

// held returns Conflict when users or bindings have a role.
func held(s *view.Snapshot, name string) error {
	if n := Holders(s)[name]; n > 0 {
		return errs.New(errs.Conflict, "%d users have the role %s: give them another first", n, name)
	}
	for _, b := range s.Bindings.All() {
		if b.Role == name {
			return errs.New(errs.Conflict, "the binding %s gives the role %s: delete it, or give it another role first", b.Name, name)
		}
	}
	return nil
}

// withoutHolders makes a change fail when a user or a binding gets the role before the commit. Conflict
// when one has it already.
func (o *Accounts) withoutHolders(ctx context.Context, c *txn.Change, name string) error {
	mark, err := store.Get(ctx, o.Store, keys.RoleMark(name))
	if errs.Is(err, errs.NotFound) {
		c.Guards = append(c.Guards, store.Missing(keys.RoleMark(name)))
		return nil
	}
	if err != nil {
		return errs.Wrap("operate.withoutHolders", err)
	}
	s, err := o.View.WaitRev(ctx, mark.ModRev)
	if err != nil {
		return errs.Wrap("operate.withoutHolders", err)
	}
	c.Writes = append(c.Writes, store.Remove(keys.RoleMark(name), mark.ModRev))
	return held(s, name)
}

// Holders returns how many users have each role.
func Holders(s *view.Snapshot) map[string]int {
	out := map[string]int{}
	for _, u := range s.Users.All() {
		out[u.Role]++
	}
	return out
}

// giveRole adds to a change that a user or a binding gets a role. The change fails when the role's permissions
// changed meanwhile. It touches the mark of a role that can be deleted, which makes a concurrent
// deletion fail.
func giveRole(c *txn.Change, s *view.Snapshot, name string, may []account.Permission) error {
	role, ok := auth.RoleOf(s, name)
	if !ok {
		return errs.Field("role", "%s does not exist: name a role that orrery get roles lists", txn.Clip(name))
	}
	if p, ok := beyond(may, role.Permissions); ok {
		return errs.New(errs.Denied, "you cannot give the role %s: it has the permission %s, which you lack", name, p)
	}
	if stored, ok := s.Roles.Get(name); ok {
		c.Guards = append(c.Guards, store.Unchanged(keys.Role(name), stored.ModRev))
	} else {
		c.Guards = append(c.Guards, store.Missing(keys.Role(name)))
	}
	if !role.BuiltIn {
		c.Writes = append(c.Writes, store.Touch(keys.RoleMark(name), account.RoleMark{}))
	}
	return nil
}
