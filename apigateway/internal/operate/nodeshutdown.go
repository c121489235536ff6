package operate

import (
	"context"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// maxShutdownReason bounds why a node is shut down, in characters.
const maxShutdownReason = 200

// ErrNodeNotConnected is the cause when a node's agent is not there to be asked.
var ErrNodeNotConnected = errs.New(errs.Conflict, "the node is not connected: there is no agent to ask")

// ShutdownNode has a node's agent stop its instances, each by its own policy, and end; dryRun
// only tells whether it could. It is audited that it was asked, also when the agent may not
// have heard it. NotFound when there is no such node, ErrNodeNotConnected, Invalid for a
// reason that is none, Unavailable when the agent does not answer, Conflict when the one that
// answers is another node's.
func (o *Operations) ShutdownNode(ctx context.Context, by Actor, id fleet.NodeID, reason string, dryRun bool) error {
	s := o.Snapshot()
	if _, ok := s.Nodes.Get(id); !ok {
		return errs.New(errs.NotFound, "there is no node %s", clip(string(id)))
	}
	if utf8.RuneCountInString(reason) > maxShutdownReason || fleet.HasControl(reason) {
		return errs.Field("reason", "must be at most %d characters without control characters", maxShutdownReason)
	}
	if _, alive := s.NodeSessions.Get(id); !alive {
		return ErrNodeNotConnected
	}
	if dryRun {
		return nil
	}
	return o.outside(ctx, by, entry{action: "node.shutdown", resource: "node", id: string(id), details: reason}, func() error {
		return o.cfg.Agents.Shutdown(ctx, id, reason)
	})
}
