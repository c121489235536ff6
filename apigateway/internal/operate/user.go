package operate

import (
	"context"
	"net/mail"
	"regexp"
	"strconv"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// maxUsers bounds the users there may be.
	maxUsers = 10_000
	// maxEmail is the length of the longest address, in bytes.
	maxEmail = 254
	// maxOwned bounds the API tokens that are changed together with their user.
	maxOwned = 64
)

var userName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)

// UserWrite is what a user is to be; nil leaves what is.
type UserWrite struct {
	// Name is the new user's, or a new one for who is there; in lower case.
	Name, Email, Role *string
	// PasswordHash is as auth.Service makes it. With another one all logins end.
	PasswordHash *string
	// EndTokens also ends the user's API tokens, together with another password.
	EndTokens bool
	// OldHash is the one that was proven, and must still be; "" for any.
	OldHash string
	// IfMatch is the revision the user must be at; 0 accepts any.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
	// May are the permissions of who asks: nobody makes or changes somebody who may more.
	May []fleet.Permission
}

// shownUser is what the audit keeps of a user.
type shownUser struct {
	Username string `json:"username"`
	Email    string `json:"email,omitempty"`
	Role     string `json:"role"`
	// Password is set when there is another one.
	Password string `json:"password,omitempty"`
}

func showUser(u fleet.User) shownUser {
	return shownUser{Username: u.Username, Email: u.Email, Role: u.Role}
}

// CreateUser makes a user; Name, Role and PasswordHash are required. Invalid names what is
// wrong, AlreadyExists when there is one of that name, Denied when the role may more than
// who asks, Exhausted when there are too many.
func (o *Operations) CreateUser(ctx context.Context, by Actor, w UserWrite) (out fleet.User, err error) {
	if err := w.check(); err != nil {
		return out, err
	}
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		now := o.now()
		// An epoch of its own, so that tokens of an earlier user of that name stay worthless.
		out = fleet.User{Username: *w.Name, Role: *w.Role, PasswordHash: *w.PasswordHash, Epoch: now.UnixMicro(), CreatedAt: now}
		if w.Email != nil {
			out.Email = *w.Email
		}
		if _, ok := s.Users.Get(*w.Name); ok {
			return change{}, nameTaken(*w.Name)
		}
		if s.Users.Len() >= maxUsers {
			return change{}, errs.New(errs.Exhausted, "there are %d users, the most there may be: delete some", maxUsers)
		}
		c := change{
			writes: []store.Write{store.Create(store.UserKey(*w.Name), out)},
			audit:  entry{action: "user.create", resource: "user", id: *w.Name, after: showUser(out)},
		}
		if err := c.giveRole(s, *w.Role, w.May); err != nil || w.DryRun {
			return change{}, err
		}
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	return o.asStored(out), nil
}

// asStored is a user as the view has it.
func (o *Operations) asStored(u fleet.User) fleet.User {
	if now, ok := o.Snapshot().Users.Get(u.Username); ok && now.CreatedAt.Equal(u.CreatedAt) {
		return *now
	}
	return u
}

func nameTaken(name string) error {
	return errs.New(errs.AlreadyExists, "there is a user %s already", name)
}

func noUser(name string) error { return errs.New(errs.NotFound, "there is no user %s", clip(name)) }

// check refuses what no user can be.
func (w *UserWrite) check() error {
	if w.Name != nil && !userName.MatchString(*w.Name) {
		return errs.Field("username", "must be 1 to 32 letters, digits, '.', '_' or '-' and begin with a letter or digit; it is %q", clip(*w.Name))
	}
	if w.Email != nil && *w.Email != "" {
		if a, err := mail.ParseAddress(*w.Email); err != nil || a.Address != *w.Email || len(*w.Email) > maxEmail {
			return errs.Field("email", "%q is no address", clip(*w.Email))
		}
	}
	return nil
}

// UpdateUser changes a user. With another name or password all its tokens of logins are
// worthless; API tokens go with the name. Errors as of CreateUser; NotFound when there is
// none, Conflict when nobody with the role ADMIN would be left, MovedError when IfMatch does
// not hold. What changes nothing writes nothing.
func (o *Operations) UpdateUser(ctx context.Context, by Actor, name string, w UserWrite) (out fleet.User, err error) {
	if err := w.check(); err != nil {
		return out, err
	}
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		old, err := userAt(s, name, w.IfMatch)
		if err != nil {
			return change{}, err
		}
		if w.EndTokens && (w.PasswordHash == nil || w.Name != nil && *w.Name != name) {
			return change{}, errs.Field("endApiTokens", "goes with another password, and not with another name")
		}
		if w.OldHash != "" && w.OldHash != old.PasswordHash {
			return change{}, errs.New(errs.Unauthenticated, "the current password is wrong: it was changed just now")
		}
		out = w.applied(*old)
		c := change{audit: entry{action: "user.update", resource: "user", id: name, before: showUser(*old)}}
		if err := c.changeUser(s, *old, out, w.May); err != nil {
			return change{}, err
		}
		if w.DryRun || len(c.writes) == 0 {
			return change{}, nil
		}
		if w.PasswordHash != nil {
			c.forgive(s, name)
		}
		if w.EndTokens {
			if err := c.endTokens(s, name); err != nil {
				return change{}, err
			}
		}
		if out.Username != name {
			c.audit.objects = []string{"user/" + name, "user/" + out.Username}
		}
		after := showUser(out)
		if w.PasswordHash != nil {
			after.Password = "changed"
		}
		c.audit.after = after
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	return o.asStored(out), nil
}

// endTokens removes a user's API tokens. Conflict when there are too many to do so at once.
func (c *change) endTokens(s *view.Snapshot, user string) error {
	tokens, err := owned(s, user)
	for _, t := range tokens {
		c.writes = append(c.writes, store.Remove(store.APITokenKey(t.ID), t.ModRev))
	}
	if len(tokens) > 0 {
		c.audit.details = strconv.Itoa(len(tokens)) + " API tokens ended too"
	}
	return err
}

// userAt is a user, at a revision if it is not 0.
func userAt(s *view.Snapshot, name string, ifMatch int64) (*fleet.User, error) {
	u, ok := s.Users.Get(name)
	switch {
	case !ok:
		return nil, noUser(name)
	case ifMatch != 0 && ifMatch != u.ModRev:
		return nil, &MovedError{What: "user " + name, Want: ifMatch, Have: u.ModRev}
	}
	return u, nil
}

// applied is the user with what is to be otherwise.
func (w *UserWrite) applied(u fleet.User) fleet.User {
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

// changeUser adds what it takes to make one user of another.
func (c *change) changeUser(s *view.Snapshot, old, to fleet.User, may []fleet.Permission) error {
	if err := within(s, old, may); err != nil { // themselves too, with an API token that may less
		return err
	}
	if to == old {
		return nil
	}
	if to.Role != old.Role {
		if err := c.giveRole(s, to.Role, may); err != nil {
			return err
		}
		if err := c.keepAdmin(s, old); err != nil {
			return err
		}
	}
	if to.Username == old.Username {
		c.writes = append(c.writes, store.Replace(store.UserKey(old.Username), to, old.ModRev))
		return nil
	}
	if _, ok := s.Users.Get(to.Username); ok {
		return nameTaken(to.Username)
	}
	c.writes = append(c.writes, store.Remove(store.UserKey(old.Username), old.ModRev), store.Create(store.UserKey(to.Username), to))
	tokens, err := owned(s, old.Username)
	for _, t := range tokens {
		moved := *t
		moved.User = to.Username
		c.writes = append(c.writes, store.Replace(store.APITokenKey(t.ID), moved, t.ModRev))
	}
	return err
}

// within refuses to change a user who may more than who asks.
func within(s *view.Snapshot, u fleet.User, may []fleet.Permission) error {
	role, _ := auth.RoleOf(s, u.Role)
	for _, p := range role.Permissions {
		if !auth.MayGive(may, p) {
			return errs.New(errs.Denied, "the user %s has the permission %s: only who has it too can change that user", u.Username, p)
		}
	}
	return nil
}

// keepAdmin makes sure that somebody is left who may do everything, when a user is not to
// be that any more: another one, who must still be there when this is committed.
func (c *change) keepAdmin(s *view.Snapshot, u fleet.User) error {
	if u.Role != auth.RoleAdmin {
		return nil
	}
	for name, other := range s.Users.All() {
		if other.Role == auth.RoleAdmin && name != u.Username {
			c.guards = append(c.guards, store.Unchanged(store.UserKey(name), other.ModRev))
			return nil
		}
	}
	return errs.New(errs.Conflict, "%s is the last user with the role %s: give it to somebody else first", u.Username, auth.RoleAdmin)
}

// owned are a user's API tokens. Conflict when there are too many to change them at once.
func owned(s *view.Snapshot, user string) (out []*fleet.APIToken, err error) {
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

// DeleteUser removes a user with all its tokens and what else is kept of it. Errors as of UpdateUser. With dryRun only
// the checks are made.
func (o *Operations) DeleteUser(ctx context.Context, by Actor, name string, w UserWrite) error {
	return InTime(ctx, func(ctx context.Context) error {
		_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) { return o.userDeleted(ctx, s, name, w) })
		return err
	})
}

func (o *Operations) userDeleted(ctx context.Context, s *view.Snapshot, name string, w UserWrite) (change, error) {
	u, err := userAt(s, name, w.IfMatch)
	if err != nil {
		return change{}, err
	}
	c := change{
		writes: []store.Write{store.Remove(store.UserKey(name), u.ModRev)},
		audit:  entry{action: "user.delete", resource: "user", id: name, before: showUser(*u)},
	}
	tokens, err := owned(s, name)
	if err == nil {
		err = within(s, *u, w.May)
	}
	if err == nil {
		err = c.keepAdmin(s, *u)
	}
	if err != nil || w.DryRun {
		return change{}, err
	}
	for _, t := range tokens {
		c.writes = append(c.writes, store.Remove(store.APITokenKey(t.ID), t.ModRev))
	}
	c.forgive(s, name)
	err = c.forgetAccount(ctx, o, u)
	return c, err
}
