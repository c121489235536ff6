package driver

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/startvalue"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// containerOf is the container of a plan, or nil if the plan uses none. address is the
// instance's advertised address.
func containerOf(plan fleet.Plan, p fleet.Placement, values map[string]string, address string) *runtime.Container {
	if plan.Runtime != fleet.RuntimeDocker {
		return nil
	}
	c := &runtime.Container{Container: plan.Container, Address: address}
	c.Image, _ = startvalue.Split(values, p.Values).Image(plan) // spec reports the error
	if p.Port > 0 {                                             // a game may use TCP, UDP or both
		c.Ports = append(c.Ports, runtime.Port{Number: p.Port, Protocol: "tcp"}, runtime.Port{Number: p.Port, Protocol: "udp"})
	}
	for _, named := range plan.AdditionalPorts {
		if port := p.Ports[named.Name]; port > 0 {
			c.Ports = append(c.Ports, runtime.Port{Number: port, Protocol: named.Protocol})
		}
	}
	return c
}

// prepareRuntime lets a plan's runtime do slow work before the directory is built, such as pulling
// an image. Errors are Unavailable if the node does not offer the runtime, and Preparer's.
func (i *Instance) prepareRuntime(ctx context.Context, name fleet.RuntimeName, image string) error {
	return retryAway(ctx, func() error {
		rt, err := i.deps.offered(name)
		if p, ok := rt.(runtime.Preparer); ok && err == nil {
			return p.Prepare(ctx, image)
		}
		return err
	})
}
