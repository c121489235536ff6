package command

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

const (
	// confirmed is the argument that confirms a shutdown of the whole cluster.
	confirmed = "confirm"
	// gateways is the service name in the sessions of gateways.
	gateways = "apigateway"
)

// shutdownCluster shuts down all connected nodes, then the other gateways, then this one, and reports
// the result for each. If the request to a connected node fails, the gateways keep running so that the
// user can retry.
func shutdownCluster(ctx context.Context, c *call) error {
	var nodes, away []fleet.NodeID
	for id := range c.snapshot.Nodes.All() {
		if _, alive := c.snapshot.NodeSessions.Get(id); alive {
			nodes = append(nodes, id)
		} else {
			away = append(away, id)
		}
	}
	var others []*cluster.Session
	for _, r := range c.snapshot.ServiceSessions(gateways) {
		if r.Replica != c.cfg.Replica {
			others = append(others, r)
		}
	}
	switch c.arg(0) {
	case confirmed:
	case "":
		return errs.New(errs.Invalid, "nothing is shut down: cluster shutdown %s stops all instances of the nodes that are connected (%d), ends their agents, and then the gateways (%d)",
			confirmed, len(nodes), len(others)+1)
	default:
		return errs.New(errs.Malformed, "%q is no confirmation: cluster shutdown %s", clip(c.arg(0)), confirmed)
	}
	for _, id := range away {
		if err := c.say("node %s is not connected: its instances keep running", id); err != nil {
			return err
		}
	}
	if err := c.shutdownNodes(ctx, nodes); err != nil {
		return err
	}
	for _, r := range others {
		if err := c.endGateway(ctx, r); err != nil {
			return err
		}
	}
	if _, err := c.cfg.Operations.Record(ctx, c.By, "system.shutdown", "replica", c.cfg.Replica, "cluster shutdown"); err != nil {
		return err
	}
	c.then = c.cfg.End
	if err := c.say("gateway %s, which sends this message, ends", c.cfg.Replica); err != nil {
		return err
	}
	return c.say("etcd, schedulers, enforcers and template services keep running: stop them where they were started")
}

// shutdownNodes asks agents to stop their instances and exit. It returns Unavailable unless all agents
// confirmed.
func (c *call) shutdownNodes(ctx context.Context, nodes []fleet.NodeID) error {
	failed, err := c.cfg.Operations.ShutdownNodes(ctx, c.By, nodes, "cluster shutdown")
	if err != nil {
		return err
	}
	missed := 0
	for n, id := range nodes {
		if failed[n] != nil {
			missed++
		}
		if err := c.say("node %s %s", id, became(failed[n], "stops its instances, and its agent ends", "was not asked")); err != nil {
			return err
		}
	}
	if missed > 0 {
		return errs.New(errs.Unavailable, "%d of %d nodes did not confirm the shutdown, so the gateways keep running: try again, or stop those agents where they were started", missed, len(nodes))
	}
	return nil
}

// became describes the result of a shutdown request. done is the text for success, not the one for a
// request that surely did not arrive.
func became(failed error, done, not string) string {
	switch {
	case failed == nil:
		return done
	case nodeops.MayHaveHeard(failed):
		return "may have heard it: " + Explain(failed)
	}
	return not + ": " + Explain(failed)
}

// endGateway asks another gateway to shut down and reports the result.
func (c *call) endGateway(ctx context.Context, r *cluster.Session) error {
	failed := c.cfg.Operations.EndReplica(ctx, c.By, r.Replica, "cluster shutdown", func(ctx context.Context) error { return c.cfg.EndOther(ctx, r) })
	return c.say("gateway %s %s", r.Replica, became(failed, "ends", "was not asked, and serves on"))
}
