// Package scheduler is the service that decides where instances run: it places
// what is pending on nodes that have room, and says why the rest waits.
//
// It owns shards of groups; as many replicas as you like share them. It reads
// everything from the view and keeps nothing in memory that is not in the store.
// Beside that it answers questions over HTTP (package client asks them): why an
// instance is where it is or waits, and what would happen if.
package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/scheduler/internal/controller"
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
	// Replica is this process' name among the schedulers.
	Replica string
	// Version is shown in the replica's session record.
	Version string
	// SessionTTL is how long others wait for a replica that died. 0 means store.DefaultTTL.
	SessionTTL time.Duration
	// Takeover ends a predecessor's session of the same name: only for whoever holds
	// proof that it is gone.
	Takeover bool
	// ClusterSecret must come with every question. Empty: none are answered, and the
	// settings below mean nothing.
	ClusterSecret string
	// Listen is where questions are asked. Empty means DefaultListen.
	Listen string
	// AdvertiseURL is where others reach that. Empty: derived from the listener, see wire.URLOf.
	AdvertiseURL string
	// MaxCPUPercent is the measured use of a node's processors above which it takes nothing
	// new while another node is below. 100 excludes no node, 0 means DefaultMaxCPUPercent.
	MaxCPUPercent int
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
}

// DefaultMaxCPUPercent is Config.MaxCPUPercent unless told otherwise.
const DefaultMaxCPUPercent = 95

// Service is a scheduler. Make it with New.
type Service struct {
	replica    *store.Replica
	controller *controller.Controller
	questions  *questions
	view       *view.View
}

// New makes a service that waits for Run, which closes the listener that New opens.
// Invalid when something required is missing or the address cannot be used.
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
		Self: fleet.Session{Service: "scheduler", Replica: cfg.Replica, Version: cfg.Version, StartedAt: cfg.Now().UTC()},
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

// waitFor bounds the wait for the revision that a question wants to be answered at.
const waitFor = 500 * time.Millisecond

// ask is the moment a question is answered from. One that cannot be had at the
// revision wanted is better than none: the answer names its own.
func (s *Service) ask(ctx context.Context, atLeast int64) (*controller.Moment, error) {
	if atLeast > 0 {
		soon, cancel := context.WithTimeout(ctx, waitFor)
		_, _ = s.view.WaitRev(soon, atLeast)
		cancel()
	}
	return s.controller.Ask(ctx)
}

// Run places instances until ctx ends; then it hands its shards over at once. No
// instance is touched by its end.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.replica.Run(ctx) })
	g.Go(func() error { return s.controller.Run(ctx) })
	g.Go(func() error { return s.questions.run(ctx) })
	return errs.Wrap("scheduler.Run", g.Wait())
}
