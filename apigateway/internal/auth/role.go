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
		NodesView, NodesUpdate, NodesDrain, QuotasView, GroupsView, GroupsCreate, GroupsUpdate, GroupsStart, InstancesView, InstancesStop,
		InstancesCommand, InstancesConsole, PlayersView, PlayersTransfer, NetworksView, NetworksCreate, NetworksUpdate,
		TemplatesView, TemplatesCreate, TemplatesUpdate, CrashesView, ShareInvoke, ShareRevoke, TokensView,
		ModulesView, CatalogView, MetricsView, EventsStream, EventsView,
	},
	RoleViewer: {
		NodesView, QuotasView, GroupsView, InstancesView, InstancesConsole, PlayersView, NetworksView, TemplatesView, CrashesView,
		ModulesView, CatalogView, MetricsView, EventsStream, EventsView,
	},
	RoleDaemonHost: {
		NodesView, QuotasView, GroupsView, InstancesView, InstancesConsole, PlayersView, NetworksView, TemplatesView, CrashesView,
		ModulesView, MetricsView, EventsStream, EventsView, InstancesStop, InstancesCommand,
	},
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
		return Role{Name: name, Permissions: stored.Permissions, BuiltIn: is, ModRev: stored.ModRev}, true
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
		who.Permissions = slices.DeleteFunc(slices.Clone(token.Scopes), func(p Permission) bool { return !slices.Contains(role.Permissions, p) })
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
