package controller

import (
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
)

// Ending tells the instances that the deadline of the node's session is near or has passed.
// It never blocks.
func (c *Controller) Ending(s deadline.Stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lapsed = c.lapsed || s == deadline.Lapsed
	for _, i := range c.instances {
		i.Send(machine.Expiring{Force: s == deadline.Lapsed})
	}
}
