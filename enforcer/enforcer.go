// Package enforcer is the service that keeps the number of instances right. It starts
// instances up to each group's minimum, replaces crashed ones, stops surplus ones, turns
// stop requests into orders for nodes, and deletes the records of finished instances.
//
// Replicas share the groups by shards; any number may run. The service reads everything
// from the view and keeps no state that is not in the store, except a record of loads that it can lose.
// It places nothing: placement is up to the scheduler. It answers one question over HTTP through package
// client: what other scaling rules would have decided.
package enforcer

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/enforcer/internal/controller"
	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/trust"
)

// Config configures the service. Store, View, Log and Replica are required.
type Config struct {
	Store *store.Client
	// View may be shared within the process. New subscribes to it, so call its Run after
	// New.
	View *view.View
	Log  *slog.Logger
	// Metrics registers the service's metrics. Nil drops them.
	Metrics prometheus.Registerer
	// Replica is this process's name among the enforcers.
	Replica string
	// Version is shown in the replica's session record.
	Version string
	// SessionTTL is how long a dead replica keeps its shards. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// Takeover ends a session that a predecessor left under the same name. Set it only if
	// the predecessor is certainly gone.
	Takeover bool
	// Peers authenticates the gateways, which ask questions. Nil answers no questions and ignores the two
	// settings below.
	Peers *trust.Peers
	// Listen is the address for questions. Empty means DefaultListen.
	Listen string
	// AdvertiseURL is the URL that others use for Listen. When empty, it is derived from the listener, see
	// trust.Peers.URLOf.
	AdvertiseURL string
	// NodesListen is the address at which the enforcer serves etcd to nodes, so that they can use it when no
	// gateway is alive. It needs Peers with certificates, and Secret, the cluster secret. Empty serves none.
	// NodesURL is the URL that nodes use for it; when empty, it is derived from the listener.
	NodesListen, NodesURL, Secret string
	// KeepFor is how long the records of finished instances are kept. 0 means an hour.
	KeepFor time.Duration
	// KeepRecords is how many finished instances are kept per group. 0 means 20, a negative
	// value none.
	KeepRecords int
	// MassLossNodes and MassLossPercent define a mass outage. While at least MassLossNodes
	// nodes and more than MassLossPercent of all nodes are lost, nothing is replaced. 0
	// means 5 and 50.
	MassLossNodes, MassLossPercent int
	// MassLossWait is how long the enforcer waits for further losses before it replaces a
	// lost node's instances. 0 means a third of the TTL of the node's session.
	MassLossWait time.Duration
	// Now returns the wall clock with a monotonic reading. Nil means time.Now.
	Now func() time.Time
}

// Service is an enforcer. Create it with New.
type Service struct {
	controller *controller.Controller
	questions  *questions
	nodes      *nodes
}

// New creates a service and opens its listener; Run closes it. It fails with Invalid when a required
// field is missing or the address cannot be used.
func New(cfg Config) (*Service, error) {
	switch {
	case cfg.Store == nil, cfg.View == nil, cfg.Log == nil:
		return nil, errs.New(errs.Invalid, "enforcer: Store, View and Log are required")
	case cfg.Replica == "":
		return nil, errs.Field("replica", "a name for this replica is required")
	}
	q, err := listen(cfg)
	if err != nil {
		return nil, err
	}
	n, err := listenForNodes(cfg)
	if err != nil {
		q.close()
		return nil, err
	}
	c, err := controller.New(controller.Config{
		Store: cfg.Store, View: cfg.View, Log: cfg.Log, Metrics: cfg.Metrics, URL: q.url(), NodesURL: n.url(),
		Replica: cfg.Replica, TTL: cfg.SessionTTL, Takeover: cfg.Takeover, Version: cfg.Version,
		Limits: cfg.limits(), Now: cfg.Now,
	})
	if err != nil {
		q.close()
		n.close()
		return nil, errs.Wrap("enforcer.New", err)
	}
	q.answer(cfg, c.Replay)
	return &Service{controller: c, questions: q, nodes: n}, nil
}

// Run works until ctx ends and then releases its shards at once. Running instances are not
// affected.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.controller.Run(ctx) })
	g.Go(func() error { return s.questions.run(ctx) })
	g.Go(func() error { return s.nodes.run(ctx) })
	return errs.Wrap("enforcer.Run", g.Wait())
}

func (c Config) limits() plan.Limits {
	l := plan.DefaultLimits()
	if c.KeepFor > 0 {
		l.KeepFor = c.KeepFor
	}
	if c.KeepRecords != 0 {
		l.KeepRecords = max(0, c.KeepRecords)
	}
	if c.MassLossNodes > 0 {
		l.MassLossNodes = c.MassLossNodes
	}
	if c.MassLossPercent > 0 {
		l.MassLossShare = float64(c.MassLossPercent) / 100
	}
	l.LossWait = c.MassLossWait
	return l
}

// Kinds are the kinds of records that Config.View must follow.
func Kinds() []view.Kind { return controller.Kinds() }
