// Package scheduler is the service that decides where instances run. It places pending
// instances on nodes with enough free resources and records why the others wait.
//
// Replicas share the groups by shards; any number may run. The service reads everything
// from the view and keeps no state that is not in the store. It also answers questions over
// HTTP through package client: why an instance runs where it does or waits, and what would
// happen in a given case.
package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/scheduler/internal/controller"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
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
	// Replica is this process's name among the schedulers.
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
	// AdvertiseURL is the URL that others use for Listen. When empty, it is derived from
	// the listener, see trust.Peers.URLOf.
	AdvertiseURL string
	// MaxCPUPercent is the CPU utilization of a node above which it takes no new instance
	// while another node is below. 100 excludes no node; 0 means DefaultMaxCPUPercent.
	MaxCPUPercent int
	// Now returns the wall clock with a monotonic reading. Nil means time.Now.
	Now func() time.Time
}

// DefaultMaxCPUPercent is the default of Config.MaxCPUPercent.
const DefaultMaxCPUPercent = 95

// Service is a scheduler. Create it with New.
type Service struct {
	replica    *store.Replica
	controller *controller.Controller
	questions  *questions
	view       *view.View
}

// New creates a service and opens its listener; Run closes it. New fails with Invalid when
// a required field is missing or the address cannot be used.
func New(cfg Config) (*Service, error) {
	switch {
	case cfg.Store == nil, cfg.View == nil, cfg.Log == nil:
		return nil, errs.New(errs.Invalid, "scheduler: Store, View and Log are required")
	case cfg.Replica == "":
		return nil, errs.Field("replica", "a name for this replica is required")
	case cfg.MaxCPUPercent < 0 || cfg.MaxCPUPercent > 100:
		return nil, errs.Field("max-cpu", "must be between 1 and 100 (no bound), in percent, is %d", cfg.MaxCPUPercent)
	}
	cfg.Listen, cfg.MaxCPUPercent = cmp.Or(cfg.Listen, DefaultListen), cmp.Or(cfg.MaxCPUPercent, DefaultMaxCPUPercent)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Service{view: cfg.View, replica: &store.Replica{
		Client: cfg.Store, TTL: cfg.SessionTTL, Takeover: cfg.Takeover, Claim: true, Log: cfg.Log,
		Self: cluster.Session{Service: "scheduler", Replica: cfg.Replica, Version: cfg.Version, StartedAt: cfg.Now().UTC()},
	}}
	var metrics *controller.Metrics
	if cfg.Metrics != nil {
		var err error
		m := telemetry.NewMetrics(cfg.Metrics, "scheduler")
		s.replica.Export(m)
		if metrics, err = controller.NewMetrics(m); err != nil {
			return nil, errs.Wrap("scheduler.New", err)
		}
	}
	s.controller = controller.New(controller.Config{
		Store: cfg.Store, View: cfg.View, Owned: s.replica.Owned, Metrics: metrics, Log: cfg.Log, Now: cfg.Now, MaxCPU: float64(cfg.MaxCPUPercent) / 100,
	})
	s.replica.Gained = func(*store.Ownership) { s.controller.Wake() }
	var err error
	if s.questions, err = listen(cfg, s.ask); err != nil {
		return nil, err
	}
	s.replica.Self.URL = s.questions.url()
	return s, nil
}

// waitFor limits the wait for the revision that a question asks for.
const waitFor = 500 * time.Millisecond

// ask returns the state to answer a question from. If the requested revision does not
// arrive in time, it returns an older one; the answer states its revision.
func (s *Service) ask(ctx context.Context, atLeast int64) (*facts.Moment, error) {
	if atLeast > 0 {
		soon, cancel := context.WithTimeout(ctx, waitFor)
		_, _ = s.view.WaitRev(soon, atLeast)
		cancel()
	}
	return s.controller.Ask(ctx)
}

// Run places instances until ctx ends and then releases its shards at once. Running
// instances are not affected.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.replica.Run(ctx) })
	g.Go(func() error { return s.controller.Run(ctx) })
	g.Go(func() error { return s.questions.run(ctx) })
	return errs.Wrap("scheduler.Run", g.Wait())
}

// Kinds are the kinds of records that Config.View must follow.
func Kinds() []view.Kind { return controller.Kinds() }
