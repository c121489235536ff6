package driver

import (
	"context"
	"maps"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/nodeagent/internal/content/provider"
)

// providedValues runs the operator's programs that provide placeholder values.
func (i *Instance) providedValues(ctx context.Context, plan fleet.Plan, p fleet.Placement) (values map[string]string, notes []string) {
	return i.deps.Providers.Values(ctx, provider.Facts{
		Instance: p.Instance, Name: p.Name, Group: p.Group, Node: p.Node, Runtime: plan.Runtime, Port: p.Port, Ports: p.Ports, MemoryMiB: plan.Resources.MemoryMiB,
	})
}

// mergeVariables merges a node's variables over provided values. A provided value cannot replace a
// built-in placeholder.
func mergeVariables(variables, provided map[string]string) map[string]string {
	if len(provided) == 0 {
		return variables
	}
	builtIn := compose.Placeholders(compose.PlaceholderContext{})
	all := map[string]string{}
	for key, value := range provided {
		if _, every := builtIn[key]; !every && !strings.HasPrefix(key, "PORT_") {
			all[key] = value
		}
	}
	maps.Copy(all, variables)
	return all
}
