package nodeops

import (
	"context"
	"unicode/utf8"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

const (
	// maxShutdownReason is the maximum length of a shutdown reason, in characters.
	maxShutdownReason = 200
	// shutDownAtOnce limits concurrent shutdown requests to nodes.
	shutDownAtOnce = 16
)

// ErrNodeNotConnected says that a node's agent is not connected.
var ErrNodeNotConnected = errs.New(errs.Conflict, "the node is not connected: there is no agent to ask")

// ShutdownNode asks a node's agent to stop its instances, each by its own policy, and to exit. It
// audits the request even when the agent may not have received it. With dryRun it only checks.
// NotFound when the node does not exist, ErrNodeNotConnected, Invalid for a bad reason, Unavailable
// when the agent does not answer, Conflict when another node's agent answers.
func (o *Nodes) ShutdownNode(ctx context.Context, by txn.Actor, id fleet.NodeID, reason string, dryRun bool) error {
	s := o.Snapshot()
	if _, ok := s.Nodes.Get(id); !ok {
		return errs.New(errs.NotFound, "there is no node %s", txn.Clip(string(id)))
	}
	if utf8.RuneCountInString(reason) > maxShutdownReason || validate.HasControl(reason) {
		return errs.Field("reason", "must be at most %d characters without control characters", maxShutdownReason)
	}
	if _, alive := s.NodeSessions.Get(id); !alive {
		return ErrNodeNotConnected
	}
	if dryRun {
		return nil
	}
	return o.Outside(ctx, by, txn.Entry{Action: "node.shutdown", Resource: "node", ID: string(id), Details: reason}, func() error {
		return o.agents.Shutdown(ctx, id, reason)
	})
}

// ShutdownNodes is ShutdownNode for several connected nodes, the first step of a cluster shutdown.
// failed has the result of each node at its index; MayHaveHeard tells which failed nodes may shut
// down all the same. A request with an idempotency key is recorded for the whole cluster, and
// released when no node received it. When err is not nil, no node was asked.
func (o *Nodes) ShutdownNodes(ctx context.Context, by txn.Actor, ids []fleet.NodeID, reason string) (failed []error, err error) {
	whole := txn.Entry{Action: "system.shutdown", Resource: "cluster", Details: txn.Count(len(ids), "node")}
	return o.Each(ctx, whole, len(ids), shutDownAtOnce, func(ctx context.Context, n int) error {
		return o.ShutdownNode(ctx, by, ids[n], reason, false)
	})
}

// EndReplica asks another gateway to exit, by ask, as a step of a cluster shutdown, and audits the
// result. It does not record a request with an idempotency key. Errors are those of ask.
func (o *Nodes) EndReplica(ctx context.Context, by txn.Actor, replica, reason string, ask func(context.Context) error) error {
	ctx = txn.WithoutOnce(ctx)
	return o.Outside(ctx, by, txn.Entry{Action: "system.shutdown", Resource: "replica", ID: replica, Details: reason}, func() error { return ask(ctx) })
}

// MayHaveHeard reports whether the receiver of a failed request may act on it all the same, because
// the request was sent and only the answer is missing.
func MayHaveHeard(err error) bool { return err != nil && !upstream.NotDone(err) }
