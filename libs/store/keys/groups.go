package keys

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
)

// The keys of groups, networks, quotas, schedules and overlays.

// Group is what a group declares. Written by the gateway.
func Group(name fleet.GroupName) Key[fleet.Group] {
	return Key[fleet.Group]{Root + "groups/" + string(name)}
}

// Groups are all groups.
func Groups() Prefix[fleet.Group] { return Prefix[fleet.Group]{Root + "groups/"} }

// CrashLoop is the pause of a group after repeated crashes. It is a record so that it survives
// a failover. Written by the enforcer.
func CrashLoop(group fleet.GroupName) Key[crashloop.Loop] {
	return Key[crashloop.Loop]{Root + "crashloops/" + string(group)}
}

// Deployment is the request to replace a group's instances by new ones. The latest 20 of a group
// are kept. Numbers are padded, so that keys are in the order of deployments. Written by the
// gateway, removed by the enforcer.
func Deployment(group fleet.GroupName, number int64) Key[deployment.Deployment] {
	return Key[deployment.Deployment]{Root + "deployments/" + string(group) + "/" + fmt.Sprintf("%012d", number)}
}

// DeploymentProgress is how far a deployment has come. Written by the enforcer.
func DeploymentProgress(group fleet.GroupName, number int64) Key[deployment.Progress] {
	return Key[deployment.Progress]{Root + "deployment-progress/" + string(group) + "/" + fmt.Sprintf("%012d", number)}
}

// DeploymentName is the common end of the keys of a deployment.
func DeploymentName(group fleet.GroupName, number int64) string {
	return string(group) + "/" + fmt.Sprintf("%012d", number)
}

// Scaling is the latest change of a group's number of instances because of its load. It is a record
// so that the cooldown survives a failover. Written by the enforcer.
func Scaling(group fleet.GroupName) Key[scaling.Decision] {
	return Key[scaling.Decision]{Root + "scaling/" + string(group)}
}

// Tenant is the number of a static group, from which nodes derive the user of its instances. It stays when
// the group is deleted. Written by the enforcer.
func Tenant(group fleet.GroupName) Key[cluster.Tenant] {
	return Key[cluster.Tenant]{Root + "tenants/" + string(group)}
}

// TenantNumber claims the number of a static group, so that no two groups have the same. No view holds
// it. Written by the enforcer in the transaction that creates Tenant.
func TenantNumber(number int) Key[cluster.TenantNumber] {
	return Key[cluster.TenantNumber]{Root + "tenant-numbers/" + strconv.Itoa(number)}
}

// Name claims an ordinal of a group, and with it an instance's name. Written by the gateway and
// the enforcer in the transaction that creates the instance.
func Name(group fleet.GroupName, ordinal int) Key[NameClaim] {
	return Key[NameClaim]{Root + "names/" + string(group) + "/" + strconv.Itoa(ordinal)}
}

// FixedName claims a name that staticInstanceNames of a group gives, in lower case. Written by the
// gateway and the enforcer in the transaction that creates the instance.
func FixedName(name string) Key[NameClaim] {
	return Key[NameClaim]{Root + "names/=/" + name}
}

// NameOf returns the key that claims an instance's name: Name for GROUP-N, FixedName for others.
// The case of letters makes no difference, and no two groups claim the same name.
func NameOf(name string) Key[NameClaim] {
	name = strings.ToLower(name)
	if g, ordinal, ok := fleet.ParseInstanceName(name); ok {
		return Name(g, ordinal)
	}
	return FixedName(name)
}

// MarkOfNames is replaced whenever a group begins to give fixed names to its instances. The
// creation of a group compares it, so that no two groups have the same names. Written by the gateway.
func MarkOfNames() Key[NameMark] {
	return Key[NameMark]{Root + "name-marks/all"}
}

// Network is a network of proxies and groups. Written by the gateway.
func Network(name string) Key[players.Network] {
	return Key[players.Network]{Root + "networks/" + name}
}

// MentionMark is touched whenever a record begins to name a group. The deletion of a group
// compares it, so that no record names a deleted group. Written by the gateway.
func MentionMark() Key[players.MentionMark] {
	return Key[players.MentionMark]{Root + "mention-marks/all"}
}

// Quota limits the resources that groups with certain labels use together, and reserves resources
// for them. Written by the gateway.
func Quota(name string) Key[cluster.Quota] { return Key[cluster.Quota]{Root + "quotas/" + name} }

// QuotaAlloc is touched by each placement that counts towards a quota, so that two schedulers
// cannot exceed it together. Written by the scheduler.
func QuotaAlloc(name string) Key[cluster.QuotaAlloc] {
	return Key[cluster.QuotaAlloc]{Root + "quota-allocs/" + name}
}

// Schedule is an action at the times of a cron expression. Written by the gateway.
func Schedule(name string) Key[schedule.Schedule] {
	return Key[schedule.Schedule]{Root + "schedules/" + name}
}

// ScheduleState is the run in progress and the last runs of a schedule. Written by the gateway; the
// writes of its loop are fenced by its session.
func ScheduleState(name string) Key[schedule.State] {
	return Key[schedule.State]{Root + "schedule-states/" + name}
}

// Overlay changes fields of groups during time windows. Written by the gateway.
func Overlay(name string) Key[schedule.Overlay] {
	return Key[schedule.Overlay]{Root + "overlays/" + name}
}

// ActiveOverlays are the overlays that are active now. Starts of instances compare them, and so do
// stops because of a minimum or maximum. Written by the gateway, fenced by its session.
func ActiveOverlays() Key[schedule.Active] {
	return Key[schedule.Active]{Root + "active-overlays/cluster"}
}

// DeclaredGroup is a group as a template source declares it, or the request to delete it.
// Written by the template service.
func DeclaredGroup(source string, group fleet.GroupName) Key[compose.DeclaredGroup] {
	return Key[compose.DeclaredGroup]{Root + "declared-groups/" + source + "/" + string(group)}
}

// DeclaredGroups are the declared groups of all sources.
func DeclaredGroups() Prefix[compose.DeclaredGroup] {
	return Prefix[compose.DeclaredGroup]{Root + "declared-groups/"}
}

// DeclaredGroupsOf are the declared groups of one source.
func DeclaredGroupsOf(source string) Prefix[compose.DeclaredGroup] {
	return Prefix[compose.DeclaredGroup]{Root + "declared-groups/" + source + "/"}
}

// DeclaredStatus is what became of a declared group. Written by the gateway.
func DeclaredStatus(source string, group fleet.GroupName) Key[compose.DeclaredStatus] {
	return Key[compose.DeclaredStatus]{Root + "declared-status/" + source + "/" + string(group)}
}

// DeclaredStatuses are the statuses of all declared groups.
func DeclaredStatuses() Prefix[compose.DeclaredStatus] {
	return Prefix[compose.DeclaredStatus]{Root + "declared-status/"}
}

// DeclaredCatalogEntry is a catalog platform or version as a template source declares it, or
// the request to delete it. Written by the template service.
func DeclaredCatalogEntry(source, name string) Key[compose.DeclaredCatalog] {
	return Key[compose.DeclaredCatalog]{Root + "declared-catalog/" + source + "/" + name}
}

// DeclaredCatalog are the declared catalog entries of all sources.
func DeclaredCatalog() Prefix[compose.DeclaredCatalog] {
	return Prefix[compose.DeclaredCatalog]{Root + "declared-catalog/"}
}

// DeclaredCatalogOf are the declared catalog entries of one source.
func DeclaredCatalogOf(source string) Prefix[compose.DeclaredCatalog] {
	return Prefix[compose.DeclaredCatalog]{Root + "declared-catalog/" + source + "/"}
}

// DeclaredCatalogStatus is what became of a declared catalog entry. Written by the gateway.
func DeclaredCatalogStatus(source, name string) Key[compose.DeclaredStatus] {
	return Key[compose.DeclaredStatus]{Root + "declared-catalog-status/" + source + "/" + name}
}

// DeclaredCatalogStatuses are the statuses of all declared catalog entries.
func DeclaredCatalogStatuses() Prefix[compose.DeclaredStatus] {
	return Prefix[compose.DeclaredStatus]{Root + "declared-catalog-status/"}
}
