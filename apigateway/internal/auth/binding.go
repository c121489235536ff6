package auth

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ofGroups are the permissions that a binding can give in some groups: those that concern a group's
// instances, players, crashes and events, and the use of the group as declared. The others, such as
// groups.create and templates.view, concern the whole fleet.
var ofGroups = []Permission{
	GroupsView, GroupsUpdate, GroupsStart, GroupsEnv, InstancesView, InstancesStop, InstancesCommand, InstancesDelete, InstancesConsole,
	InstancesFiles, InstancesFilesWrite, BackupsView, BackupsManage, BackupsRestore, PlayersView, PlayersTransfer, PlayersMessage, CrashesView, ShareInvoke, ShareRevoke, EventsStream,
}

// grant is what a binding gives in the groups that its selector matches.
type grant struct {
	selector    label.Selector
	permissions []Permission
}

func (g grant) equal(o grant) bool {
	return g.selector.String() == o.selector.String() && slices.Equal(g.permissions, o.permissions)
}

// GrantedBy returns the permissions that a binding gives: those of its role, or with a selector those
// of them that can be given in some groups.
func GrantedBy(s *view.Snapshot, b account.Binding) []Permission {
	role, _ := RoleOf(s, b.Role)
	if b.Selector.Empty() {
		return role.Permissions
	}
	return slices.DeleteFunc(slices.Clone(role.Permissions), func(p Permission) bool { return !slices.Contains(ofGroups, p) })
}

// PermissionsOf returns all permissions that a user has anywhere.
func PermissionsOf(s *view.Snapshot, u *account.User) []Permission {
	role, _ := RoleOf(s, u.Role)
	all := role.Permissions
	for _, b := range s.BindingsOf(u.ID()) {
		all = union(all, GrantedBy(s, *b))
	}
	return all
}

// union returns the elements of a and those of b that a lacks. It does not modify a.
func union(a, b []Permission) []Permission {
	a = slices.Clip(a)
	for _, p := range b {
		if !slices.Contains(a, p) {
			a = append(a, p)
		}
	}
	return a
}

// bind adds what bindings give to an identity. within limits permissions to those of its API token.
func (i *Identity) bind(s *view.Snapshot, within func([]Permission) []Permission) {
	for _, b := range s.BindingsOf(i.UserID) {
		given := GrantedBy(s, *b)
		if b.Selector.Empty() {
			i.ofUser = union(i.ofUser, given)
			i.Permissions = union(i.Permissions, within(given))
		} else if given = within(given); len(given) > 0 {
			i.grants = append(i.grants, grant{b.Selector, given})
		}
	}
}

// Scoped reports whether the identity has permissions in some groups only.
func (i Identity) Scoped() bool { return len(i.grants) > 0 }

// Somewhere reports whether the identity has all the permissions in the fleet, or may have them in a group.
func (i Identity) Somewhere(permissions ...Permission) bool {
	for _, p := range permissions {
		if !i.Can(p) && !slices.ContainsFunc(i.grants, func(g grant) bool { return slices.Contains(g.permissions, p) }) {
			return false
		}
	}
	return true
}

// Anywhere returns all permissions that the identity has in the fleet or in some groups.
func (i Identity) Anywhere() []Permission {
	all := i.Permissions
	for _, g := range i.grants {
		all = union(all, g.permissions)
	}
	return all
}

// In returns the identity with the permissions that it has in a group, and whether a binding gives it
// any there. In a group that does not exist it has those in the whole fleet only.
func (i Identity) In(s *view.Snapshot, name fleet.GroupName) (_ Identity, bound bool) {
	if !i.Scoped() {
		return i, false
	}
	g, ok := s.Groups.Get(name)
	if !ok {
		return i, false
	}
	for _, gives := range i.grants {
		if gives.selector.Matches(g.Spec.Labels) {
			i.Permissions, bound = union(i.Permissions, gives.permissions), true
		}
	}
	return i, bound
}

// sameRights reports whether two identities may do the same.
func sameRights(a, b Identity) bool {
	return slices.Equal(a.Permissions, b.Permissions) && slices.EqualFunc(a.grants, b.grants, grant.equal)
}
