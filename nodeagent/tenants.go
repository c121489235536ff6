package nodeagent

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/node/tenants"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// InstanceUIDs is the Config.InstanceUIDs of a program with the settings instance-uids and instance-user. If
// both are empty, it is a default range, provided that the agent is root and has the range in its user
// namespace.
func InstanceUIDs(setting, instanceUser string) string {
	if setting != "" || instanceUser != "" || os.Geteuid() != 0 {
		return setting
	}
	span, err := tenants.Parse(tenants.Default)
	if err != nil || span.CheckMapped(os.DirFS("/proc")) != nil {
		return ""
	}
	return tenants.Default
}

// checkTenants returns an Invalid error if the agent cannot give its instances users of their own as
// configured.
func checkTenants(cfg *Config) error {
	if cfg.InstanceUIDs == "" {
		if cfg.RequireTenants {
			return errs.Field("require-tenants", "the agent cannot isolate its instances: %s", whyShared(cfg))
		}
		return nil
	}
	if cfg.InstanceUser != "" {
		return errs.Field(tenants.Setting, "cannot be used with instance-user, which gives all instances the same user: clear one of them")
	}
	span, err := tenants.Parse(cfg.InstanceUIDs)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errs.Field(tenants.Setting, "needs an agent that runs as root: start it as root, or clear the setting")
	}
	if err := span.CheckMapped(os.DirFS("/proc")); err != nil {
		return err
	}
	return span.Check(os.DirFS("/etc"))
}

// whyShared says why instances share a user, and what to do.
func whyShared(cfg *Config) string {
	switch {
	case cfg.InstanceUser != "":
		return fmt.Sprintf("instance-user makes all of them run as %s, so they can read each other's files; clear it", cfg.InstanceUser)
	case os.Geteuid() != 0:
		return "the agent does not run as root, so they run as its user and can read its files and each other's; start it as root"
	}
	return fmt.Sprintf("they run as root like the agent, because the ids %s are not in its user namespace; set %s to a range that is", tenants.Default, tenants.Setting)
}

// view finds out what instances of other users see of the host. The error says why that is not limited.
func (a *Agent) view() (confine.View, error) {
	if os.Geteuid() != 0 {
		return confine.View{}, nil
	}
	return confine.Probe()
}

// tenancy is what the node's record says about the isolation of instances. blind is the error of view.
func (a *Agent) tenancy(blind error) isolation.Tenants {
	switch {
	case a.cfg.InstanceUIDs == "":
		return isolation.Tenants{Why: whyShared(&a.cfg)}
	case blind != nil:
		return isolation.Tenants{Isolated: true, Why: fmt.Sprintf("instances see which processes of others run, because the agent may not mount a /proc for them (%v); give it CAP_SYS_ADMIN, and Linux 5.8 or later", blind)}
	}
	return isolation.Tenants{Isolated: true}
}

// logTenancy warns if instances are not isolated.
func logTenancy(log *slog.Logger, t isolation.Tenants) {
	switch {
	case !t.Isolated:
		log.Warn("instances are not isolated from each other", "why", t.Why)
	case t.Why != "":
		log.Warn("instances are isolated from each other, with an exception", "why", t.Why)
	}
}

// tenants returns the ids of the node's instances, or nil without a range. An instance that waits, runs or
// sleeps keeps the id of its journal entry, or else the one that owns its directory.
func (a *Agent) tenants(dir string, entries []journal.Entry, builder *workspace.Builder) *tenants.Numbers {
	span, err := tenants.Parse(a.cfg.InstanceUIDs)
	if err != nil { // New has refused all but the empty text
		return nil
	}
	held := map[fleet.InstanceID]int{}
	for id, uid := range span.Running(dir) {
		held[fleet.InstanceID(id)] = uid
	}
	for _, e := range entries {
		p := e.Machine.Placement
		if e.UID != 0 && (e.Machine.Phase != machine.Ended || builder.Exists(p, e.Machine.Plan)) {
			held[p.Instance] = e.UID
		}
	}
	return tenants.New(span, held, func() map[int]bool { return span.Left(dir) })
}

// tenantNumber reads the number of a static group. NotFound if the group has no number.
func (a *Agent) tenantNumber(ctx context.Context, g fleet.GroupName) (int, error) {
	t, err := store.Get(ctx, a.cfg.Store, keys.Tenant(g))
	return t.Number, err
}
