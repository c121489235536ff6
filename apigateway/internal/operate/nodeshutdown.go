package operate

import (
	"context"
	"sync"
	"unicode/utf8"

	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// maxShutdownReason bounds why a node is shut down, in characters.
	maxShutdownReason = 200
	// shutDownAtOnce bounds how many nodes are asked at a time.
	shutDownAtOnce = 16
)

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

// ShutdownNodes is ShutdownNode for all nodes that are connected, as the first step towards the
// end of the cluster: what came of each stands at its place in failed, and MayHaveHeard tells which
// of those that failed may be ending all the same. A request that is carried out once is
// remembered as one for the cluster, not for a node, and forgotten when none of them has heard
// anything. With an err, which is as of commit, nobody was asked.
func (o *Operations) ShutdownNodes(ctx context.Context, by Actor, ids []fleet.NodeID, reason string) (failed []error, err error) {
	if err := o.claim(ctx, entry{action: "system.shutdown", resource: "cluster", details: counted(len(ids), "node")}); err != nil {
		return nil, err
	}
	failed = make([]error, len(ids))
	room := make(chan struct{}, shutDownAtOnce)
	one := byTurns(elsewhere(ctx))
	var asking sync.WaitGroup
	for n, id := range ids {
		asking.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if ctx.Err() != nil {
				failed[n] = errs.New(errs.Exhausted, "there was no time left for it")
				return
			}
			failed[n] = o.ShutdownNode(one, by, id, reason, false)
		})
	}
	asking.Wait()
	for _, err := range failed {
		if err == nil || MayHaveHeard(err) {
			return failed, nil
		}
	}
	if len(ids) > 0 {
		o.yield(ctx)
	}
	return failed, nil
}

// EndReplica asks another gateway to end, by ask, as a step towards the end of the cluster. It is
// audited with what came of it; a request that is carried out once is not remembered as this.
// Errors as of ask.
func (o *Operations) EndReplica(ctx context.Context, by Actor, replica, reason string, ask func(context.Context) error) error {
	ctx = elsewhere(ctx)
	return o.outside(ctx, by, entry{action: "system.shutdown", resource: "replica", id: replica, details: reason}, func() error { return ask(ctx) })
}

// MayHaveHeard reports whether somebody whom it failed to ask to end may be ending all the same: what
// was asked was sent, and not answered.
func MayHaveHeard(err error) bool { return err != nil && !upstream.NotDone(err) }
