// Package enforcer is the service that keeps the counts: it makes instances up to
// each group's minimum, replaces what crashed, stops what is too many, turns the
// wish to stop into orders for nodes, and forgets what has long finished.
//
// It owns shards of groups; as many replicas as you like share them. It reads
// everything from the view and keeps nothing in memory that is not in the store.
// It has no API of its own and places nothing: that is the scheduler's.
package enforcer

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/enforcer/internal/controller"
	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config is what the service needs. Store, View, Log and Replica are required.
type Config struct {
	Store *store.Client
	// View is shared with whoever else is in the process. New subscribes to it, so
	// its Run comes after New.
	View *view.View
	Log  *slog.Logger
	// Metrics takes the service's metrics. Nil drops them.
	Metrics prometheus.Registerer
	// Replica is this process' name among the enforcers.
	Replica string
	// Version is shown in the replica's session record.
	Version string
	// SessionTTL is how long others wait for a replica that died. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// Takeover ends a predecessor's session of the same name: only for whoever holds
	// proof that it is gone.
	Takeover bool
	// KeepFor is how long records of finished instances are kept. 0 means an hour.
	KeepFor time.Duration
	// KeepRecords is how many of them are kept per group. 0 means 20, negative none.
	KeepRecords int
	// With at least MassLossNodes nodes and more than MassLossPercent of all lost at
	// once nothing is replaced until more are back. 0 means 5, and 50.
	MassLossNodes, MassLossPercent int
	// MassLossWait is how long a lost node's instances wait for further losses before
	// they are replaced. 0 means a third of the TTL of the node's session.
	MassLossWait time.Duration
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
}

// Service is an enforcer. Make it with New.
type Service struct{ controller *controller.Controller }

// New makes a service that waits for Run. Invalid when something required is missing.
func New(cfg Config) (*Service, error) {
	switch {
	case cfg.Store == nil, cfg.View == nil, cfg.Log == nil:
		return nil, errs.New(errs.Invalid, "enforcer: Store, View and Log are required")
	case cfg.Replica == "":
		return nil, errs.Field("replica", "a name for this replica is required")
	}
	c, err := controller.New(controller.Config{
		Store: cfg.Store, View: cfg.View, Log: cfg.Log, Metrics: cfg.Metrics,
		Replica: cfg.Replica, TTL: cfg.SessionTTL, Takeover: cfg.Takeover, Version: cfg.Version,
		Limits: cfg.limits(), Now: cfg.Now,
	})
	if err != nil {
		return nil, errs.Wrap("enforcer.New", err)
	}
	return &Service{controller: c}, nil
}

// Run keeps the groups until ctx ends; then it hands its shards over at once. No
// instance is touched by its end.
func (s *Service) Run(ctx context.Context) error { return s.controller.Run(ctx) }

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
