package driver

import (
	"context"
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/turns"
)

// awaitTurn waits until few enough other instances start on the node. The status says so meanwhile.
func (i *Instance) awaitTurn(ctx context.Context, run int, plan fleet.Plan) error {
	waited := false
	err := i.deps.Starts.Take(ctx, i.id, turns.Rank{Priority: plan.Priority, StartupWeight: plan.StartupWeight}, func(limit int) {
		waited = true
		i.Send(machine.Queued{Run: run, Message: fmt.Sprintf("it waits for its turn: %d instances start on its node at a time", limit)})
	})
	if waited && err == nil {
		i.Send(machine.Queued{Run: run})
	}
	return err
}

// endTurn ends the turn of an instance that does not start.
func (i *Instance) endTurn() {
	switch i.entry.Machine.Phase {
	case machine.Preparing, machine.Launching, machine.Starting:
	case machine.Online, machine.Waiting, machine.Unconfirmed, machine.AwaitingSession, machine.Stopping, machine.Ended:
		i.deps.Starts.Give(i.id)
	}
}
