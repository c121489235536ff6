package controller

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
)

// StopLocally stops an instance for somebody on the node itself, whatever the store
// says, and returns when that is journalled. NotFound when the node does not have
// it, Unavailable when the agent is leaving.
func (c *Controller) StopLocally(ctx context.Context, id fleet.InstanceID, by string, force bool) error {
	i, err := c.Instance(id)
	if err != nil {
		return err
	}
	return i.Order(ctx, machine.StoppedLocally{Force: force, By: by})
}

// Unwritten is how many statuses the store does not have yet, and since when the
// oldest of them waits; zero when there is none.
func (c *Controller) Unwritten() (n int, since time.Time) { return c.writer.unwritten() }

// LocalRestarts is how many runs this agent began in place by itself.
func (c *Controller) LocalRestarts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restarts
}

// Orphans is how many instances run without a record in the store.
func (c *Controller) Orphans() int {
	n := 0
	for _, l := range c.Live() {
		if l.Orphan && l.Status.State.Running() {
			n++
		}
	}
	return n
}
