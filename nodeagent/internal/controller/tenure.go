package controller

import (
	"github.com/orreryhq/orrery/nodeagent/internal/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
)

// Ending tells the instances that the node's session may be over soon, or any
// moment. It never blocks.
func (c *Controller) Ending(s deadline.Stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lapsed = c.lapsed || s == deadline.Lapsed
	for _, i := range c.instances {
		i.Send(machine.Expiring{Force: s == deadline.Lapsed})
	}
}
