package auth

import (
	"maps"
	"slices"
)

// Permission is the right to do one kind of thing, "<what>.<verb>".
type Permission string

// The permissions, in the order they are shown.
const (
	NodesView         Permission = "nodes.view"
	NodesUpdate       Permission = "nodes.update"
	NodesDrain        Permission = "nodes.drain"
	NodesRevokeCert   Permission = "nodes.revoke-cert"
	NodesShutdown     Permission = "nodes.shutdown"
	GroupsView        Permission = "groups.view"
	GroupsCreate      Permission = "groups.create"
	GroupsUpdate      Permission = "groups.update"
	GroupsDelete      Permission = "groups.delete"
	GroupsStart       Permission = "groups.start"
	QuotasView        Permission = "quotas.view"
	QuotasManage      Permission = "quotas.manage"
	InstancesView     Permission = "instances.view"
	InstancesStop     Permission = "instances.stop"
	InstancesCommand  Permission = "instances.command"
	InstancesDelete   Permission = "instances.delete"
	InstancesConsole  Permission = "instances.console"
	PlayersView       Permission = "players.view"
	PlayersTransfer   Permission = "players.transfer"
	NetworksView      Permission = "networks.view"
	NetworksCreate    Permission = "networks.create"
	NetworksUpdate    Permission = "networks.update"
	NetworksDelete    Permission = "networks.delete"
	TemplatesView     Permission = "templates.view"
	TemplatesCreate   Permission = "templates.create"
	TemplatesUpdate   Permission = "templates.update"
	TemplatesDelete   Permission = "templates.delete"
	CrashesView       Permission = "crashes.view"
	ShareInvoke       Permission = "share.invoke"
	ShareRevoke       Permission = "share.revoke"
	TokensView        Permission = "tokens.view"
	TokensCreate      Permission = "tokens.create"
	TokensRevoke      Permission = "tokens.revoke"
	UsersView         Permission = "users.view"
	UsersCreate       Permission = "users.create"
	UsersUpdate       Permission = "users.update"
	UsersDelete       Permission = "users.delete"
	RolesView         Permission = "roles.view"
	RolesManage       Permission = "roles.manage"
	ModulesView       Permission = "modules.view"
	ModulesManage     Permission = "modules.manage"
	CatalogView       Permission = "catalog.view"
	CatalogManage     Permission = "catalog.manage"
	AuditView         Permission = "audit.view"
	SystemSettings    Permission = "system.settings"
	SystemLogsView    Permission = "system.logs.view"
	SystemShutdown    Permission = "system.shutdown"
	MetricsView       Permission = "metrics.view"
	EventsStream      Permission = "events.stream"
	EventsView        Permission = "events.view"
	BackupsView       Permission = "backups.view"
	BackupsManage     Permission = "backups.manage"
	BackupsRestore    Permission = "backups.restore"
	ClusterView       Permission = "cluster.view"
	ClusterConfigEdit Permission = "cluster.config.write"
	ClusterManage     Permission = "cluster.manage"
)

// The built-in roles.
const (
	RoleAdmin    = "ADMIN"
	RoleOperator = "OPERATOR"
	RoleViewer   = "VIEWER"
)

// roles are the permissions of the built-in roles. ADMIN has all but
// cluster.manage, which is given on purpose only.
var roles = map[string][]Permission{
	RoleAdmin: {
		NodesView, NodesUpdate, NodesDrain, NodesRevokeCert, NodesShutdown, QuotasView, QuotasManage, GroupsView, GroupsCreate, GroupsUpdate, GroupsDelete,
		GroupsStart, InstancesView, InstancesStop, InstancesCommand, InstancesDelete, InstancesConsole, PlayersView,
		PlayersTransfer, NetworksView, NetworksCreate, NetworksUpdate, NetworksDelete, TemplatesView, TemplatesCreate,
		TemplatesUpdate, TemplatesDelete, CrashesView, ShareInvoke, ShareRevoke, TokensView, TokensCreate,
		TokensRevoke, UsersView, UsersCreate, UsersUpdate, UsersDelete, RolesView, RolesManage, ModulesView,
		ModulesManage, CatalogView, CatalogManage, AuditView, SystemSettings, SystemLogsView, SystemShutdown,
		MetricsView, EventsStream, EventsView, BackupsView, BackupsManage, BackupsRestore, ClusterView,
		ClusterConfigEdit,
	},
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
}

// Roles are the names of the built-in roles, sorted.
func Roles() []string { return slices.Sorted(maps.Keys(roles)) }

// PermissionsOf are a role's permissions; none for a role nobody knows.
func PermissionsOf(role string) []Permission { return slices.Clone(roles[role]) }
