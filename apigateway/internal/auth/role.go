package auth

import (
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The built-in roles.
const (
	RoleAdmin    = "ADMIN"
	RoleOperator = "OPERATOR"
	RoleViewer   = "VIEWER"
	// RoleDaemonHost is for programs on the nodes' hosts.
	RoleDaemonHost = "DAEMON_HOST"
	// RoleNone is for users who have only what bindings give them.
	RoleNone = "NONE"
)

// builtIn has the default permissions of the built-in roles. Those of ADMIN and NONE cannot be changed:
// all except cluster.manage, which has to be granted explicitly, and none.
var builtIn = map[string][]Permission{
	RoleAdmin: without(permissions, ClusterManage),
	RoleOperator: {
		NodesView, NodesUpdate, NodesDrain, QuotasView, GroupsView, GroupsCreate, GroupsUpdate, GroupsStart, GroupsEnv, InstancesView, InstancesStop,
		InstancesCommand, InstancesConsole, InstancesFiles, InstancesFilesWrite, PlayersView, PlayersTransfer, PlayersMessage, NetworksView, NetworksCreate, NetworksUpdate,
		TemplatesView, TemplatesContent, TemplatesCreate, TemplatesUpdate, CrashesView, ShareInvoke, ShareRevoke, TokensView,
		ModulesView, CatalogView, MetricsView, EventsStream, EventsView,
	},
	RoleViewer: {
		NodesView, QuotasView, GroupsView, InstancesView, InstancesConsole, PlayersView, NetworksView, TemplatesView, CrashesView,
		ModulesView, CatalogView, MetricsView, EventsStream, EventsView,
	},
	RoleDaemonHost: {
		NodesView, QuotasView, GroupsView, InstancesView, InstancesConsole, PlayersView, NetworksView, TemplatesView, CrashesView,
		ModulesView, MetricsView, EventsStream, EventsView, InstancesStop, InstancesCommand, InstancesFiles,
	},
	RoleNone: {},
}

// Fixed reports whether the permissions of a role cannot be changed.
func Fixed(role string) bool { return role == RoleAdmin || role == RoleNone }

// contents are permissions to read data that may contain secrets. Earlier versions included them in
// read permissions. VIEWER and PUBLIC tokens lack them unless they are granted explicitly.
var contents = []struct {
	content Permission
	// had are two permissions that together imply content in a permission set of an earlier version:
	// their holder could read the same data, and change it or send commands.
	had [2]Permission
}{
	{InstancesFiles, [2]Permission{InstancesConsole, InstancesCommand}},
	{TemplatesContent, [2]Permission{TemplatesView, TemplatesUpdate}},
	{GroupsEnv, [2]Permission{GroupsView, GroupsUpdate}},
}

// inEdition returns the permissions that a stored set grants now. A set from before contents
// split keeps those contents that its holder could change or command; a set that only looks
// loses them.
func inEdition(stored []Permission, edition int) []Permission {
	if edition >= account.PermissionEdition {
		return stored
	}
	out := slices.Clone(stored)
	for _, c := range contents {
		if slices.Contains(stored, c.had[0]) && slices.Contains(stored, c.had[1]) && !slices.Contains(stored, c.content) {
			out = append(out, c.content)
		}
	}
	return out
}

// readable returns the permissions that a PUBLIC token may have: those of VIEWER, and contents.
func readable() []Permission {
	out := slices.Clone(builtIn[RoleViewer])
	for _, c := range contents {
		out = append(out, c.content)
	}
	return out
}

func without(all []Permission, one Permission) []Permission {
	return slices.DeleteFunc(slices.Clone(all), func(p Permission) bool { return p == one })
}

// Role is a role with its current permissions.
type Role struct {
	Name string
	// Permissions must not be modified.
	Permissions []Permission
	BuiltIn     bool
	// ModRev is the record's revision; 0 for an unchanged built-in role.
	ModRev int64
}

// RoleOf returns the role with a name.
func RoleOf(s *view.Snapshot, name string) (Role, bool) {
	own, is := builtIn[name]
	if stored, ok := s.Roles.Get(name); ok && !Fixed(name) {
		return Role{Name: name, Permissions: inEdition(stored.Permissions, stored.Edition), BuiltIn: is, ModRev: stored.ModRev}, true
	}
	return Role{Name: name, Permissions: own, BuiltIn: is}, is
}

// Roles returns all roles, sorted by name.
func Roles(s *view.Snapshot) []Role {
	names := slices.Collect(maps.Keys(builtIn))
	for name := range s.Roles.All() {
		if _, is := builtIn[name]; !is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := make([]Role, len(names))
	for n, name := range names {
		out[n], _ = RoleOf(s, name)
	}
	return out
}

// BuiltInPermissions returns the default permissions of a built-in role, nil for other roles. Do not
// modify the result.
func BuiltInPermissions(name string) []Permission { return builtIn[name] }

// AllPermissions returns all permissions. Do not modify the result.
func AllPermissions() []Permission { return permissions }

// Known reports whether a permission exists.
func Known(p Permission) bool { return slices.Contains(permissions, p) }

// identityOf returns the current identity of a user. Without an existing role, it has no permissions.
func identityOf(s *view.Snapshot, u *account.User, token *account.APIToken) Identity {
	role, _ := RoleOf(s, u.Role)
	who := Identity{User: u.Username, UserID: u.ID(), Role: u.Role, Permissions: role.Permissions, ofUser: role.Permissions}
	within := func(all []Permission) []Permission { return all }
	if token != nil {
		who.TokenID, who.Public, who.token = token.ID, token.Public, token
		if len(token.Scopes) > 0 {
			scopes := inEdition(token.Scopes, token.Edition)
			within = func(all []Permission) []Permission {
				return slices.DeleteFunc(slices.Clone(scopes), func(p Permission) bool { return !slices.Contains(all, p) })
			}
			who.Permissions = within(who.Permissions)
		}
	}
	who.bind(s, within)
	return who
}

// MayGive reports whether a caller with some permissions may grant p, or change objects that have it.
// Callers can grant only what they have, except for ClusterManage, which no user has at first: callers
// with all other permissions may grant it.
func MayGive(may []account.Permission, p account.Permission) bool {
	if slices.Contains(may, p) {
		return true
	}
	return p == ClusterManage && !slices.ContainsFunc(permissions, func(other account.Permission) bool {
		return other != ClusterManage && !slices.Contains(may, other)
	})
}
