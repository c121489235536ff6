package auth

import "github.com/orreryhq/orrery/libs/fleet"

// Permission is the right to do one kind of thing, "<what>.<verb>".
type Permission = fleet.Permission

// The permissions, in the order they are shown.
const (
	NodesView       Permission = "nodes.view"
	NodesUpdate     Permission = "nodes.update"
	NodesDrain      Permission = "nodes.drain"
	NodesRevokeCert Permission = "nodes.revoke-cert"
	NodesShutdown   Permission = "nodes.shutdown"
	GroupsView      Permission = "groups.view"
	GroupsCreate    Permission = "groups.create"
	GroupsUpdate    Permission = "groups.update"
	GroupsDelete    Permission = "groups.delete"
	GroupsStart     Permission = "groups.start"
	// GroupsEnv shows the environment that groups declare.
	GroupsEnv        Permission = "groups.env"
	QuotasView       Permission = "quotas.view"
	QuotasManage     Permission = "quotas.manage"
	InstancesView    Permission = "instances.view"
	InstancesStop    Permission = "instances.stop"
	InstancesCommand Permission = "instances.command"
	InstancesDelete  Permission = "instances.delete"
	InstancesConsole Permission = "instances.console"
	// InstancesFiles reads the files in instances' directories.
	InstancesFiles  Permission = "instances.files"
	PlayersView     Permission = "players.view"
	PlayersTransfer Permission = "players.transfer"
	NetworksView    Permission = "networks.view"
	NetworksCreate  Permission = "networks.create"
	NetworksUpdate  Permission = "networks.update"
	NetworksDelete  Permission = "networks.delete"
	TemplatesView   Permission = "templates.view"
	// TemplatesContent reads the files of templates.
	TemplatesContent  Permission = "templates.content"
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

// permissions are all there are, in the order they are shown.
var permissions = []Permission{
	NodesView, NodesUpdate, NodesDrain, NodesRevokeCert, NodesShutdown, GroupsView, GroupsCreate, GroupsUpdate,
	GroupsDelete, GroupsStart, GroupsEnv, QuotasView, QuotasManage, InstancesView, InstancesStop, InstancesCommand, InstancesDelete,
	InstancesConsole, InstancesFiles, PlayersView, PlayersTransfer, NetworksView, NetworksCreate, NetworksUpdate, NetworksDelete,
	TemplatesView, TemplatesContent, TemplatesCreate, TemplatesUpdate, TemplatesDelete, CrashesView, ShareInvoke, ShareRevoke, TokensView,
	TokensCreate, TokensRevoke, UsersView, UsersCreate, UsersUpdate, UsersDelete, RolesView, RolesManage, ModulesView,
	ModulesManage, CatalogView, CatalogManage, AuditView, SystemSettings, SystemLogsView, SystemShutdown, MetricsView,
	EventsStream, EventsView, BackupsView, BackupsManage, BackupsRestore, ClusterView, ClusterConfigEdit, ClusterManage,
}
