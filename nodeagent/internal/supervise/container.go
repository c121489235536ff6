package supervise

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/startvalue"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// containerOf is what a plan's container is made of; nil when it runs in none. address
// is what the instance is advertised under.
func containerOf(plan fleet.Plan, p fleet.Placement, values map[string]string, address string) *runtime.Container {
	if plan.Runtime != fleet.RuntimeDocker {
		return nil
	}
	c := &runtime.Container{Container: plan.Container, Address: address}
	c.Image, _ = startvalue.Split(values, p.Values).Image(plan) // spec refuses what is none
	if p.Port > 0 {                                             // games use either, or both
		c.Ports = append(c.Ports, runtime.Port{Number: p.Port, Protocol: "tcp"}, runtime.Port{Number: p.Port, Protocol: "udp"})
	}
	for _, named := range plan.AdditionalPorts {
		if port := p.Ports[named.Name]; port > 0 {
			c.Ports = append(c.Ports, runtime.Port{Number: port, Protocol: named.Protocol})
		}
	}
	return c
}

// makeReady has a plan's runtime get what takes time before the directory is built. Errors
// are Unavailable where the node does not offer it, and Preparer's.
func (i *Instance) makeReady(ctx context.Context, name fleet.RuntimeName, image string) error {
	return patiently(ctx, func() error {
		rt, err := i.kit.offered(name)
		if p, ok := rt.(runtime.Preparer); ok && err == nil {
			return p.Prepare(ctx, image)
		}
		return err
	})
}
