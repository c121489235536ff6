package operate

import (
	"context"
	"regexp"
	"slices"
	"strconv"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxRoles bounds the roles there may be, those built-in ones included that were changed.
const maxRoles = 100

var roleName = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,31}$`)

// RoleWrite asks for a role to have these permissions and no others.
type RoleWrite struct {
	Name        string // in upper case
	Permissions []fleet.Permission
	// Create wants the role to be new.
	Create bool
	// IfMatch is the revision it must be at; 0 accepts any.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
	// May are the permissions of who asks: nobody gives what they do not have.
	May []fleet.Permission
}

// WriteRole makes a role or changes it, for all who have it at once. Invalid names what is
// wrong, Denied says what may not be given or changed, AlreadyExists and NotFound as Create
// wants it, MovedError when IfMatch does not hold. What changes nothing writes nothing.
func (o *Operations) WriteRole(ctx context.Context, by Actor, w RoleWrite) (out auth.Role, err error) {
	if err := w.normalize(); err != nil {
		return out, err
	}
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		old, err := w.target(s)
		if err != nil {
			return change{}, err
		}
		out = auth.Role{Name: w.Name, Permissions: w.Permissions, BuiltIn: old.BuiltIn, ModRev: old.ModRev}
		if w.DryRun || !w.Create && slices.Equal(ordered(old.Permissions), w.Permissions) {
			return change{}, nil
		}
		write := store.Replace(store.RoleKey(w.Name), fleet.Role{Name: w.Name, Permissions: w.Permissions, Edition: fleet.PermissionEdition, By: by.User, At: o.now()}, old.ModRev)
		if old.BuiltIn && old.ModRev != 0 && slices.Equal(ordered(auth.BuiltInPermissions(w.Name)), w.Permissions) {
			write = store.Remove(store.RoleKey(w.Name), old.ModRev) // as it was: what later versions add to it comes again
		}
		c := change{
			writes: []store.Write{write},
			audit:  entry{action: "role.update", resource: "role", id: w.Name, before: rolePermissions(old), after: rolePermissions(out)},
		}
		if w.Create {
			c.audit.action, c.audit.before = "role.create", nil
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

// rolePermissions is what the audit keeps of a role.
func rolePermissions(r auth.Role) any {
	return map[string]any{"permissions": r.Permissions}
}

// normalize checks what is wanted by itself, and puts the permissions in order.
func (w *RoleWrite) normalize() error {
	if !roleName.MatchString(w.Name) {
		return errs.Field("name", "must be 1 to 32 of A-Z, 0-9 and _ and begin with a letter; it is %q", clip(w.Name))
	}
	for n, p := range w.Permissions {
		if !auth.Known(p) {
			return errs.Field("permissions["+strconv.Itoa(n)+"]", "%q is no permission; the role %s shows all there are but %s", clip(string(p)), auth.RoleAdmin, auth.ClusterManage)
		}
	}
	w.Permissions = ordered(w.Permissions)
	return nil
}

// ordered are permissions in order, each once.
func ordered(permissions []fleet.Permission) []fleet.Permission {
	out := slices.Clone(permissions)
	slices.Sort(out)
	return slices.Compact(out)
}

// target is the role a write is about, without permissions when it is to be made.
func (w *RoleWrite) target(s *view.Snapshot) (auth.Role, error) {
	old, ok := auth.RoleOf(s, w.Name)
	switch {
	case w.Create && ok:
		return old, errs.New(errs.AlreadyExists, "there is a role %s already", w.Name)
	case w.Create && s.Roles.Len() >= maxRoles:
		return old, errs.New(errs.Exhausted, "there are %d roles, the most there may be: delete some", maxRoles)
	case !w.Create && !ok:
		return old, noRole(w.Name)
	case w.Name == auth.RoleAdmin:
		return old, errs.New(errs.Denied, "what the role %s may do cannot be changed", w.Name)
	case w.IfMatch != 0 && w.IfMatch != old.ModRev:
		return old, &MovedError{What: "role " + w.Name, Want: w.IfMatch, Have: old.ModRev}
	}
	for _, p := range w.Permissions {
		if !auth.MayGive(w.May, p) {
			return old, errs.New(errs.Denied, "the permission %s cannot be given by who does not have it", p)
		}
	}
	return old, mayTouch(old, w.May)
}

// mayTouch refuses to change what may more than who asks.
func mayTouch(r auth.Role, may []fleet.Permission) error {
	for _, p := range r.Permissions {
		if !auth.MayGive(may, p) {
			return errs.New(errs.Denied, "the role %s has the permission %s: only who has it too can change that role", r.Name, p)
		}
	}
	return nil
}

func noRole(name string) error { return errs.New(errs.NotFound, "there is no role %s", clip(name)) }

// DeleteRole removes a role. NotFound when there is none, Denied when it is built in,
// Conflict when users have it; MovedError when ifMatch, if it is not 0, does not hold. With
// dryRun only the checks are made; may is as in RoleWrite.
func (o *Operations) DeleteRole(ctx context.Context, by Actor, name string, may []fleet.Permission, ifMatch int64, dryRun bool) error {
	return InTime(ctx, func(ctx context.Context) error {
		_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) {
			role, err := deletable(s, name, may, ifMatch)
			if err != nil || dryRun {
				return change{}, err
			}
			c := change{
				writes: []store.Write{store.Remove(store.RoleKey(name), role.ModRev)},
				audit:  entry{action: "role.delete", resource: "role", id: name, before: rolePermissions(role)},
			}
			err = c.withoutHolders(ctx, o, name)
			return c, err
		})
		return err
	})
}

// deletable is a role that can be deleted, as far as a snapshot tells.
func deletable(s *view.Snapshot, name string, may []fleet.Permission, ifMatch int64) (auth.Role, error) {
	role, ok := auth.RoleOf(s, name)
	switch {
	case !ok:
		return role, noRole(name)
	case role.BuiltIn:
		return role, errs.New(errs.Denied, "the role %s is built in and cannot be deleted", name)
	case ifMatch != 0 && ifMatch != role.ModRev:
		return role, &MovedError{What: "role " + name, Want: ifMatch, Have: role.ModRev}
	}
	if err := held(s, name); err != nil {
		return role, err
	}
	return role, mayTouch(role, may)
}

// held refuses to delete a role that somebody has.
func held(s *view.Snapshot, name string) error {
	if n := Holders(s)[name]; n > 0 {
		return errs.New(errs.Conflict, "%d users have the role %s: give them another first", n, name)
	}
	return nil
}

// withoutHolders has a change hold only as long as nobody is given a role who has not been
// by now. Conflict when somebody has it.
func (c *change) withoutHolders(ctx context.Context, o *Operations, name string) error {
	mark, err := store.Get(ctx, o.cfg.Store, store.RoleMarkKey(name))
	if errs.Is(err, errs.NotFound) {
		c.guards = append(c.guards, store.Missing(store.RoleMarkKey(name)))
		return nil
	}
	if err != nil {
		return errs.Wrap("operate.withoutHolders", err)
	}
	s, err := o.cfg.View.WaitRev(ctx, mark.ModRev)
	if err != nil {
		return errs.Wrap("operate.withoutHolders", err)
	}
	c.writes = append(c.writes, store.Remove(store.RoleMarkKey(name), mark.ModRev))
	return held(s, name)
}

// Holders are how many users have each role.
func Holders(s *view.Snapshot) map[string]int {
	out := map[string]int{}
	for _, u := range s.Users.All() {
		out[u.Role]++
	}
	return out
}

// giveRole adds what it takes to give a user a role: its permissions must still be those that
// were looked at, and one that can be deleted is marked, so that this is refused meanwhile.
func (c *change) giveRole(s *view.Snapshot, name string, may []fleet.Permission) error {
	role, ok := auth.RoleOf(s, name)
	if !ok {
		return errs.Field("role", "there is no role %s", clip(name))
	}
	for _, p := range role.Permissions {
		if !auth.MayGive(may, p) {
			return errs.New(errs.Denied, "the role %s has the permission %s: it cannot be given by who does not have that", name, p)
		}
	}
	if stored, ok := s.Roles.Get(name); ok {
		c.guards = append(c.guards, store.Unchanged(store.RoleKey(name), stored.ModRev))
	} else {
		c.guards = append(c.guards, store.Missing(store.RoleKey(name)))
	}
	if !role.BuiltIn {
		c.writes = append(c.writes, store.Touch(store.RoleMarkKey(name), fleet.RoleMark{}))
	}
	return nil
}
