package controller

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Service is the name under which enforcers own shards.
const Service = "enforcer"

const (
	// workers is how many groups are planned at once.
	workers = 4
	// passTimeout bounds the passes of one group, its commits included.
	passTimeout = 30 * time.Second
	// resync is the period of the safety net.
	resync = 5 * time.Minute
	// sweepAfter gathers the plans that lost a reference before they are looked at.
	sweepAfter = time.Minute
)

// sweep is the queue's key for unreferenced plans and deleted nodes: no group has this name.
const sweep fleet.GroupName = ""

// Config is what a controller needs. All but Metrics, TTL, Takeover, Version and Now are required.
type Config struct {
	Store *store.Client
	// View is subscribed to by New, so New comes before the view's Run.
	View    *view.View
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Replica is this process' name among the enforcers.
	Replica  string
	TTL      time.Duration
	Takeover bool
	Version  string
	Limits   plan.Limits
	// Now reads the wall clock, with a monotonic reading. Nil means time.Now.
	Now func() time.Time
}

// Controller keeps the groups of the shards it owns.
type Controller struct {
	store   *store.Client
	view    *view.View
	log     *slog.Logger
	limits  plan.Limits
	replica *store.Replica
	queue   *reconcile.Queue[fleet.GroupName]
	outages *outages
	stamps  *stamps
	metrics *metrics
	// wall reads the wall clock, for times that are written; began is what it said at first.
	wall  func() time.Time
	began time.Time
	// ownership is what gained heard last; it belongs to the replica's goroutine.
	ownership *store.Ownership
	// mass is whether most of the fleet was lost after the last batch; it belongs to
	// the view's goroutine.
	mass bool
}

// New makes a controller that waits for Run. An error is a defect in the metrics.
func New(cfg Config) (*Controller, error) {
	c := &Controller{store: cfg.Store, view: cfg.View, log: cfg.Log, limits: cfg.Limits, stamps: newStamps(), wall: cfg.Now}
	c.outages = newOutages(c.stamps)
	if c.wall == nil {
		c.wall = time.Now
	}
	c.began = c.wall()
	c.replica = &store.Replica{
		Client: cfg.Store, TTL: cfg.TTL, Takeover: cfg.Takeover, Claim: true, Gained: c.gained, Log: cfg.Log,
		Self: fleet.Session{Service: Service, Replica: cfg.Replica, Version: cfg.Version, StartedAt: c.began.UTC()},
	}
	var err error
	if c.metrics, err = newMetrics(cfg.Metrics, c); err != nil {
		return nil, errs.Wrap("controller.New", err)
	}
	c.queue = reconcile.New(reconcile.Options[fleet.GroupName]{
		Name: Service, Reconcile: c.reconcile, Workers: workers, Timeout: passTimeout,
		Resync: resync, Keys: c.known, Random: random(), Observer: c.metrics, Log: cfg.Log,
	})
	cfg.View.Subscribe(c.changed)
	return c, nil
}

// now is the time by which ages are measured: it runs on though the wall clock is set.
func (c *Controller) now() time.Time { return c.began.Add(c.wall().Sub(c.began)).Round(0) }

// Run keeps the groups until ctx ends, then gives the shards back at once.
func (c *Controller) Run(ctx context.Context) error {
	owning, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var ownership sync.WaitGroup
	ownership.Go(func() { _ = c.replica.Run(owning) }) // it ends only when asked to
	err := c.queue.Run(ctx)
	release() // after the last pass, so that a successor starts from what it did
	ownership.Wait()
	return err
}

// gained looks at the groups of shards that are ours from now on. What is queued
// for others is dropped when its turn comes.
func (c *Controller) gained(o *store.Ownership) {
	before := c.ownership
	c.ownership = o
	if o.Count() == 0 {
		return
	}
	for name := range c.known() {
		now, _ := o.Fence(name)
		if was, ok := before.Fence(name); !ok || was.Epoch() != now.Epoch() {
			c.queue.Add(name)
		}
	}
	c.queue.Add(sweep)
	c.queue.Add(prune)
}

// known are the owned groups: those with a record, and those that only have instances.
func (c *Controller) known() iter.Seq[fleet.GroupName] {
	return func(yield func(fleet.GroupName) bool) {
		snap, own := c.view.Snapshot(), c.replica.Owned()
		for name := range snap.Groups.All() {
			if _, ok := own.Fence(name); ok && !yield(name) {
				return
			}
		}
		for _, i := range snap.Instances.All() {
			_, declared := snap.Groups.Get(i.Intent.Group)
			if _, ok := own.Fence(i.Intent.Group); ok && !declared && !yield(i.Intent.Group) {
				return
			}
		}
	}
}

// random is a source of its own for one user.
func random() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }
