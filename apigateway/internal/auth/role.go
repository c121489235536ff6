package auth

import (
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The built-in roles.
const (
	RoleAdmin    = "ADMIN"
	RoleOperator = "OPERATOR"
	RoleViewer   = "VIEWER"
	// RoleDaemonHost is for programs on the hosts of nodes.
	RoleDaemonHost = "DAEMON_HOST"
)

// builtIn are the permissions of the built-in roles unless somebody changed them. Those of
// ADMIN nobody can: all but cluster.manage, which is given on purpose only.
var builtIn = map[string][]Permission{
	RoleAdmin: without(permissions, ClusterManage),
	RoleOperator: {
		NodesView, NodesUpdate, NodesDrain, QuotasView, GroupsView, GroupsCreate, GroupsUpdate, GroupsStart, GroupsEnv, InstancesView, InstancesStop,
		InstancesCommand, InstancesConsole, InstancesFiles, PlayersView, PlayersTransfer, NetworksView, NetworksCreate, NetworksUpdate,
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
}

// contents are the permissions to read what may hold secrets. They split from permissions that
// only look; VIEWER and PUBLIC tokens lack them unless somebody grants them.
var contents = []struct {
	content Permission
	// had are the permissions that imply the content in a set from before the split: with
	// them its holder could look at the same things, and change or command them.
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
	if edition >= fleet.PermissionEdition {
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

// readable are the permissions that a PUBLIC token may name: those of VIEWER, and contents.
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

// Role is a role as it is now.
type Role struct {
	Name string
	// Permissions are not to be changed.
	Permissions []Permission
	BuiltIn     bool
	// ModRev is its record's; 0 for a built-in role that nobody changed.
	ModRev int64
}

// RoleOf is the role with a name.
func RoleOf(s *view.Snapshot, name string) (Role, bool) {
	own, is := builtIn[name]
	if stored, ok := s.Roles.Get(name); ok && name != RoleAdmin {
		return Role{Name: name, Permissions: inEdition(stored.Permissions, stored.Edition), BuiltIn: is, ModRev: stored.ModRev}, true
	}
	return Role{Name: name, Permissions: own, BuiltIn: is}, is
}

// Roles are all roles in order of name.
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

// BuiltInPermissions are those a built-in role has unless somebody changed them, nil for
// another role. Not to be changed.
func BuiltInPermissions(name string) []Permission { return builtIn[name] }

// Known reports whether there is such a permission.
func Known(p Permission) bool { return slices.Contains(permissions, p) }

// identityOf is who a user is now: one whose role is no more may do nothing.
func identityOf(s *view.Snapshot, u *fleet.User, token *fleet.APIToken) Identity {
	role, _ := RoleOf(s, u.Role)
	who := Identity{User: u.Username, UserID: u.ID(), Role: u.Role, Permissions: role.Permissions}
	if token == nil {
		return who
	}
	who.TokenID, who.Public, who.token, who.ofRole = token.ID, token.Public, token, role.Permissions
	if len(token.Scopes) > 0 {
		who.Permissions = slices.DeleteFunc(slices.Clone(inEdition(token.Scopes, token.Edition)), func(p Permission) bool { return !slices.Contains(role.Permissions, p) })
	}
	return who
}

// MayGive reports whether who has some permissions may give one, or change what has it:
// nobody gives what they lack, but for ClusterManage, which nobody has at first: who may
// everything else gives it on purpose.
func MayGive(may []fleet.Permission, p fleet.Permission) bool {
	if slices.Contains(may, p) {
		return true
	}
	return p == ClusterManage && !slices.ContainsFunc(permissions, func(other fleet.Permission) bool {
		return other != ClusterManage && !slices.Contains(may, other)
	})
}
