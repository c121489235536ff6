package auth

import (
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// Permission is the right to do one kind of thing, "<noun>.<verb>".
type Permission = account.Permission

// The permissions in display order.
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
	// GroupsEnv allows reading the environment of groups.
	GroupsEnv        Permission = "groups.env"
	QuotasView       Permission = "quotas.view"
	QuotasManage     Permission = "quotas.manage"
	InstancesView    Permission = "instances.view"
	InstancesStop    Permission = "instances.stop"
	InstancesCommand Permission = "instances.command"
	InstancesDelete  Permission = "instances.delete"
	InstancesConsole Permission = "instances.console"
	// InstancesFiles allows reading files in instances' directories.
	InstancesFiles Permission = "instances.files"
	// InstancesFilesWrite allows changing files in directories of static instances, and so running
	// programs as the instance's user.
	InstancesFilesWrite Permission = "instances.files.write"

	PlayersView     Permission = "players.view"
	PlayersTransfer Permission = "players.transfer"
	PlayersMessage  Permission = "players.message"
	NetworksView    Permission = "networks.view"
	NetworksCreate  Permission = "networks.create"
	NetworksUpdate  Permission = "networks.update"
	NetworksDelete  Permission = "networks.delete"
	TemplatesView   Permission = "templates.view"
	// TemplatesContent allows reading template files.
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

// permissions lists all permissions in display order.
var permissions = []Permission{
	NodesView, NodesUpdate, NodesDrain, NodesRevokeCert, NodesShutdown, GroupsView, GroupsCreate, GroupsUpdate,
	GroupsDelete, GroupsStart, GroupsEnv, QuotasView, QuotasManage, InstancesView, InstancesStop, InstancesCommand, InstancesDelete,
	InstancesConsole, InstancesFiles, InstancesFilesWrite, PlayersView, PlayersTransfer, PlayersMessage, NetworksView, NetworksCreate, NetworksUpdate, NetworksDelete,
	TemplatesView, TemplatesContent, TemplatesCreate, TemplatesUpdate, TemplatesDelete, CrashesView, ShareInvoke, ShareRevoke, TokensView,
	TokensCreate, TokensRevoke, UsersView, UsersCreate, UsersUpdate, UsersDelete, RolesView, RolesManage, ModulesView,
	ModulesManage, CatalogView, CatalogManage, AuditView, SystemSettings, SystemLogsView, SystemShutdown, MetricsView,
	EventsStream, EventsView, BackupsView, BackupsManage, BackupsRestore, ClusterView, ClusterConfigEdit, ClusterManage,
}
