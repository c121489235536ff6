package accountops

import (
	"context"
	"net/mail"
	"regexp"
	"strconv"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// maxUsers limits the number of users.
	maxUsers = 10_000
	// maxEmail is the maximum length of an email address, in bytes.
	maxEmail = 254
	// maxOwned limits the API tokens that change together with their user.
	maxOwned = 64
)

var userName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)

// UserWrite is a new user or a change of one. nil fields stay as they are.
type UserWrite struct {
	// Name is the name of a new user or the new name of an existing one, in lower case.
	Name, Email, Role *string
	// PasswordHash is a hash by auth.Service. A new hash ends all logins of the user.
	PasswordHash *string
	// EndTokens also deletes the user's API tokens. It requires a new password.
	EndTokens bool
	// OldHash must be the user's current hash, because the caller proved that password; "" skips the
	// check.
	OldHash string
	// IfMatch is the revision the user must be at; 0 accepts any.
	IfMatch int64
	// Service says that the account is a service account, which has only a name and a role.
	Service bool
	// DryRun computes the result and writes nothing.
	DryRun bool
	// May are the caller's permissions. The caller cannot create or change a user with more
	// permissions.
	May []account.Permission
}

// shownUser is what the audit keeps of a user.
type shownUser struct {
	Username string `json:"username"`
	Email    string `json:"email,omitempty"`
	Role     string `json:"role"`
	// Provider is the login provider that the user comes from.
	Provider string `json:"provider,omitempty"`
	// ServiceAccount is true for the account of a program.
	ServiceAccount bool `json:"serviceAccount,omitempty"`
	// Password says that the password changed; empty if not.
	Password string `json:"password,omitempty"`
}

func ShowUser(u account.User) shownUser {
	return shownUser{Username: u.Username, Email: u.Email, Role: u.Role, Provider: u.Issuer, ServiceAccount: u.Service}
}

// CreateUser creates a user; Name, Role and PasswordHash are required. Invalid names the wrong
// field, AlreadyExists when the name is taken, Denied when the role has more permissions than the
// caller, Exhausted when there are too many users.
func (o *Accounts) CreateUser(ctx context.Context, by txn.Actor, w UserWrite) (out account.User, err error) {
	if err := w.check(); err != nil {
		return out, err
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		now := o.Now()
		// A new epoch keeps tokens of an earlier user with this name invalid.
		out = account.User{Username: *w.Name, Role: *w.Role, PasswordHash: *w.PasswordHash, Service: w.Service, Epoch: now.UnixMicro(), CreatedAt: now}
		if w.Email != nil {
			out.Email = *w.Email
		}
		if _, ok := s.Users.Get(*w.Name); ok {
			return txn.Change{}, nameTaken(*w.Name)
		}
		if s.Users.Len() >= maxUsers {
			return txn.Change{}, errs.New(errs.Exhausted, "there are %d users, the most there may be: delete some", maxUsers)
		}
		c := txn.Change{
			Writes: []store.Write{store.Create(keys.User(*w.Name), out)},
			Audit:  txn.Entry{Action: "user.create", Resource: "user", ID: *w.Name, After: ShowUser(out)},
		}
		if err := giveRole(&c, s, *w.Role, w.May); err != nil || w.DryRun {
			return txn.Change{}, err
		}
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	return o.asStored(out), nil
}

// asStored returns a user as the view shows it.
func (o *Accounts) asStored(u account.User) account.User {
	if now, ok := o.Snapshot().Users.Get(u.Username); ok && now.CreatedAt.Equal(u.CreatedAt) {
		return *now
	}
	return u
}

func nameTaken(name string) error {
	return errs.New(errs.AlreadyExists, "there is a user or a service account %s already", name)
}

func noUser(name string) error { return errs.New(errs.NotFound, "there is no user %s", txn.Clip(name)) }

// check validates the name, role and email of a write.
func (w *UserWrite) check() error {
	if w.Name != nil && !userName.MatchString(*w.Name) {
		return errs.Field("username", "must be 1 to 32 letters, digits, '.', '_' or '-' and begin with a letter or digit; it is %q", txn.Clip(*w.Name))
	}
	if w.Email != nil && *w.Email != "" {
		if a, err := mail.ParseAddress(*w.Email); err != nil || a.Address != *w.Email || len(*w.Email) > maxEmail {
			return errs.Field("email", "%q is no address", txn.Clip(*w.Email))
		}
	}
	return nil
}

// UpdateUser changes a user. Another name or password ends all logins, and API tokens follow the
// name. Errors are those of CreateUser, NotFound when the user does not exist, Conflict when no
// user with the role ADMIN would remain, and MovedError when IfMatch does not match. It writes
// nothing when nothing changes.
func (o *Accounts) UpdateUser(ctx context.Context, by txn.Actor, name string, w UserWrite) (out account.User, err error) {
	if err := w.check(); err != nil {
		return out, err
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := accountAt(s, name, w.Service, w.IfMatch)
		if err != nil {
			return txn.Change{}, err
		}
		if w.EndTokens && (w.PasswordHash == nil || w.Name != nil && *w.Name != name) {
			return txn.Change{}, errs.Field("endApiTokens", "goes with another password, and not with another name")
		}
		if old.Issuer != "" && (w.PasswordHash != nil || w.Role != nil && *w.Role != old.Role) {
			return txn.Change{}, errs.New(errs.Conflict, "the user %s logs in at %s: change the password and the groups there", name, old.Issuer)
		}
		if w.OldHash != "" && w.OldHash != old.PasswordHash {
			return txn.Change{}, errs.New(errs.Unauthenticated, "the current password is wrong: it was changed just now")
		}
		out = w.applied(*old)
		c := txn.Change{Audit: txn.Entry{Action: "user.update", Resource: "user", ID: name, Before: ShowUser(*old)}}
		if err := changeUser(&c, s, *old, out, w.May); err != nil {
			return txn.Change{}, err
		}
		if w.DryRun || len(c.Writes) == 0 {
			return txn.Change{}, nil
		}
		if w.PasswordHash != nil {
			forgive(&c, s, name)
		}
		if w.EndTokens {
			if err := endTokens(&c, s, name); err != nil {
				return txn.Change{}, err
			}
		}
		if out.Username != name {
			c.Audit.Objects = []string{"user/" + name, "user/" + out.Username}
		}
		after := ShowUser(out)
		if w.PasswordHash != nil {
			after.Password = "changed"
		}
		c.Audit.After = after
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	return o.asStored(out), nil
}

// endTokens removes a user's API tokens. Conflict when there are too many to do so at once.
func endTokens(c *txn.Change, s *view.Snapshot, user string) error {
	tokens, err := owned(s, user)
	for _, t := range tokens {
		c.Writes = append(c.Writes, store.Remove(keys.APIToken(t.ID), t.ModRev))
	}
	if len(tokens) > 0 {
		c.Audit.Details = strconv.Itoa(len(tokens)) + " API tokens ended too"
	}
	return err
}

// userAt returns a user, which must be at revision ifMatch unless that is 0.
func userAt(s *view.Snapshot, name string, ifMatch int64) (*account.User, error) {
	return accountAt(s, name, false, ifMatch)
}

// NoServiceAccount is the error for a name without a service account.
func NoServiceAccount(name string) error {
	return errs.New(errs.NotFound, "there is no service account %s", txn.Clip(name))
}

// accountAt is userAt for a user or, if service is true, a service account.
func accountAt(s *view.Snapshot, name string, service bool, ifMatch int64) (*account.User, error) {
	u, ok := s.Users.Get(name)
	switch {
	case (!ok || !u.Service) && service:
		return nil, NoServiceAccount(name)
	case !ok || u.Service != service:
		return nil, noUser(name)
	case ifMatch != 0 && ifMatch != u.ModRev:
		return nil, &txn.MovedError{What: "user " + name, Want: ifMatch, Have: u.ModRev}
	}
	return u, nil
}

// changeable is userAt for a user that the caller may change. Denied when the user has more
// permissions than the caller.
func changeable(s *view.Snapshot, name string, ifMatch int64, may []account.Permission) (*account.User, error) {
	u, err := userAt(s, name, ifMatch)
	if err == nil {
		err = within(s, *u, may)
	}
	return u, err
}

// applied returns the user with the changes of the write.
func (w *UserWrite) applied(u account.User) account.User {
	set := func(field, to *string) bool {
		changed := to != nil && *field != *to
		if changed {
			*field = *to
		}
		return changed
	}
	set(&u.Email, w.Email)
	set(&u.Role, w.Role)
	renamed, otherwise := set(&u.Username, w.Name), set(&u.PasswordHash, w.PasswordHash)
	if renamed || otherwise {
		u.Epoch++
	}
	return u
}

// changeUser adds to a change the writes that replace a user by another version of it.
func changeUser(c *txn.Change, s *view.Snapshot, old, to account.User, may []account.Permission) error {
	if err := within(s, old, may); err != nil { // an API token may have fewer permissions than its user
		return err
	}
	if to == old {
		return nil
	}
	if to.Role != old.Role {
		if err := giveRole(c, s, to.Role, may); err != nil {
			return err
		}
		if err := keepAdmin(c, s, old); err != nil {
			return err
		}
	}
	if to.Username == old.Username {
		c.Writes = append(c.Writes, store.Replace(keys.User(old.Username), to, old.ModRev))
		return nil
	}
	if _, ok := s.Users.Get(to.Username); ok {
		return nameTaken(to.Username)
	}
	c.Writes = append(c.Writes, store.Remove(keys.User(old.Username), old.ModRev), store.Create(keys.User(to.Username), to))
	tokens, err := owned(s, old.Username)
	for _, t := range tokens {
		moved := *t
		moved.User = to.Username
		c.Writes = append(c.Writes, store.Replace(keys.APIToken(t.ID), moved, t.ModRev))
	}
	return err
}

// within returns Denied when a user has a permission that the caller lacks.
func within(s *view.Snapshot, u account.User, may []account.Permission) error {
	if p, ok := beyond(may, auth.PermissionsOf(s, &u)); ok {
		return errs.New(errs.Denied, "you cannot change the user %s: they have the permission %s, which you lack", u.Username, p)
	}
	return nil
}

// beyond returns the first permission that a caller with the permissions may cannot give. ok is
// false if the caller can give them all.
func beyond(may, permissions []account.Permission) (p account.Permission, ok bool) {
	for _, p := range permissions {
		if !auth.MayGive(may, p) {
			return p, true
		}
	}
	return "", false
}

// keepAdmin makes sure that another user with the role ADMIN remains at the commit, when u is
// deleted or loses that role. Service accounts do not count, because they cannot log in.
func keepAdmin(c *txn.Change, s *view.Snapshot, u account.User) error {
	if u.Role != auth.RoleAdmin || u.Service {
		return nil
	}
	for name, other := range s.Users.All() {
		if other.Role == auth.RoleAdmin && !other.Service && name != u.Username {
			c.Guards = append(c.Guards, store.Unchanged(keys.User(name), other.ModRev))
			return nil
		}
	}
	return errs.New(errs.Conflict, "%s is the last user with the role %s: give it to another user first", u.Username, auth.RoleAdmin)
}

// owned returns the API tokens of a user. Conflict when they are too many for one transaction.
func owned(s *view.Snapshot, user string) (out []*account.APIToken, err error) {
	for _, t := range s.APITokens.All() {
		if t.User == user {
			out = append(out, t)
		}
	}
	if len(out) > maxOwned {
		return nil, errs.New(errs.Conflict, "%s has %d API tokens, more than %d: delete some first", user, len(out), maxOwned)
	}
	return out, nil
}

// DeleteUser removes a user with all tokens and other records. Errors are those of UpdateUser.
func (o *Accounts) DeleteUser(ctx context.Context, by txn.Actor, name string, w UserWrite) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		_, err := o.MutateWithin(ctx, by, func(s *view.Snapshot) (txn.Change, error) { return o.userDeleted(ctx, s, name, w) })
		return err
	})
}

func (o *Accounts) userDeleted(ctx context.Context, s *view.Snapshot, name string, w UserWrite) (txn.Change, error) {
	u, err := accountAt(s, name, w.Service, w.IfMatch)
	if err != nil {
		return txn.Change{}, err
	}
	c := txn.Change{
		Writes: []store.Write{store.Remove(keys.User(name), u.ModRev)},
		Audit:  txn.Entry{Action: "user.delete", Resource: "user", ID: name, Before: ShowUser(*u)},
	}
	tokens, err := owned(s, name)
	if err == nil {
		err = within(s, *u, w.May)
	}
	if err == nil {
		err = keepAdmin(&c, s, *u)
	}
	if err != nil || w.DryRun {
		return txn.Change{}, err
	}
	for _, t := range tokens {
		c.Writes = append(c.Writes, store.Remove(keys.APIToken(t.ID), t.ModRev))
	}
	forgive(&c, s, name)
	err = o.forgetAccount(ctx, &c, u)
	return c, err
}
