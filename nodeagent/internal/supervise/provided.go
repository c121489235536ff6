package supervise

import (
	"context"
	"maps"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/provide"
)

// provided asks the operator's programs for the placeholders of an instance.
func (i *Instance) provided(ctx context.Context, plan fleet.Plan, p fleet.Placement) (values map[string]string, notes []string) {
	return i.kit.Providers.Values(ctx, provide.Facts{
		Instance: p.Instance, Name: p.Name, Group: p.Group, Node: p.Node, Runtime: plan.Runtime, Port: p.Port, Ports: p.Ports, MemoryMiB: plan.Resources.MemoryMiB,
	})
}

// below are a node's variables over what was provided, which is nobody's in place of what
// every instance has.
func below(variables, provided map[string]string) map[string]string {
	if len(provided) == 0 {
		return variables
	}
	builtIn := fleet.Placeholders(fleet.PlaceholderContext{})
	all := map[string]string{}
	for key, value := range provided {
		if _, every := builtIn[key]; !every && !strings.HasPrefix(key, "PORT_") {
			all[key] = value
		}
	}
	maps.Copy(all, variables)
	return all
}
