package controller

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// Listed is closed when the first list of placements was processed: from then on it is
// known which instances have no record.
func (c *Controller) Listed() <-chan struct{} { return c.listed }

// Unrecorded returns the running instances whose placement is gone, and the number of all
// running instances.
func (c *Controller) Unrecorded() (ids []fleet.InstanceID, running int) {
	for id, l := range c.Live() {
		if !l.Status.State.Running() {
			continue
		}
		running++
		if l.Orphan {
			ids = append(ids, id)
		}
	}
	return ids, running
}

// Has reports whether the node has an instance.
func (c *Controller) Has(id fleet.InstanceID) bool {
	_, err := c.Instance(id)
	return err == nil
}

// StopUnrecorded stops an instance by its own policy, because it has no record.
func (c *Controller) StopUnrecorded(id fleet.InstanceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.instances[id]
	if _, recorded := c.placements[id]; !ok || recorded {
		return
	}
	i.Send(machine.Ordered{Order: fleet.Order{
		Instance: id, Node: c.cfg.Node, Generation: i.Live().Status.Generation, Action: fleet.OrderStop,
		By: fmt.Sprintf("node %s", c.cfg.Node), Reason: fleet.ReasonOrphan, Message: fleet.ReasonOrphan.Text(), At: c.deps.Now().UTC(),
	}})
}
