package nodeagent

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// policy is the configured policy with the user of groups that name none, if they share one. A container of
// an agent that is not root runs as the agent's user.
func (a *Agent) policy() policy.Policy {
	p := a.cfg.Policy
	if a.cfg.InstanceUIDs == "" {
		own, err := confine.Lookup(cmp.Or(a.cfg.InstanceUser, strconv.Itoa(os.Geteuid())))
		if err == nil { // New has checked the user
			p.Users = also(p.Users, own.Name, strconv.Itoa(own.UID))
		}
	}
	if uid := os.Geteuid(); uid != 0 {
		p.ContainerUsers = also(p.ContainerUsers, strconv.Itoa(uid), fmt.Sprintf("%d:%d", uid, os.Getegid()))
	}
	return p
}

// also returns a list with some values that it may contain already.
func also(list []string, values ...string) []string {
	list = slices.Clone(list)
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// warnPolicy warns of each group with an instance that may run on and that the policy would not start
// again, as after an upgrade or a change of the settings.
func warnPolicy(log *slog.Logger, node fleet.NodeID, p policy.Policy, entries []journal.Entry) {
	warned := map[fleet.GroupName]bool{}
	for _, e := range entries {
		plan := &e.Machine.Plan
		r := p.Check(compose.Asks(plan))
		if r != nil && !warned[plan.Group] {
			log.Warn("the node's policy will refuse the next start of a group: its instances run on until then", "group", plan.Group, "why", r.On(string(node)))
			warned[plan.Group] = true
		}
	}
}
