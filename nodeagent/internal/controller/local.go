package controller

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// StopLocally stops an instance for an operator on the node, regardless of the store. It
// returns when the stop is journalled. NotFound if the node does not have the instance,
// Unavailable if the agent is shutting down.
func (c *Controller) StopLocally(ctx context.Context, id fleet.InstanceID, by string, force bool) error {
	i, err := c.Instance(id)
	if err != nil {
		return err
	}
	return i.Order(ctx, machine.StoppedLocally{Force: force, By: by})
}

// Unwritten counts the statuses that are not yet written to the store. since is when the
// oldest of them was reported, zero if there is none.
func (c *Controller) Unwritten() (n int, since time.Time) { return c.writer.unwritten() }

// LocalRestarts counts the restarts in place that this agent started by itself.
func (c *Controller) LocalRestarts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restarts
}

// Orphans counts the running instances without a record in the store.
func (c *Controller) Orphans() int {
	n := 0
	for _, l := range c.Live() {
		if l.Orphan && l.Status.State.Running() {
			n++
		}
	}
	return n
}
