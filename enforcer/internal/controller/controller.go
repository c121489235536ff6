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
	"github.com/orreryhq/orrery/enforcer/internal/replay"
	"github.com/orreryhq/orrery/enforcer/internal/webhook"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Service is the service name under which enforcers own shards.
const Service = "enforcer"

const (
	// workers is how many groups are planned concurrently.
	workers = 4
	// passTimeout limits the passes of one group, including its commits.
	passTimeout = 30 * time.Second
	// resync is the interval at which all groups are planned without a cause, as a safety
	// net.
	resync = 5 * time.Minute
	// scaleAfter delays the look at a group whose load changed, to collect changes.
	scaleAfter = time.Second
	// sweepAfter delays a sweep, to collect the plans that lost a reference.
	sweepAfter = time.Minute
)

// sweep is the queue key for unreferenced plans and deleted nodes. No group has this name.
const sweep fleet.GroupName = ""

// Config configures a controller. All fields but Metrics, TTL, Takeover, Version, URL
// and Now are required.
type Config struct {
	Store *store.Client
	// View is subscribed to by New, so call its Run after New.
	View    *view.View
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Replica is this process's name among the enforcers.
	Replica  string
	TTL      time.Duration
	Takeover bool
	Version  string
	// URL is where the replica answers questions, and NodesURL where it serves nodes; "" for nowhere.
	URL, NodesURL string
	Limits        plan.Limits
	// Now returns the wall clock with a monotonic reading. Nil means time.Now.
	Now func() time.Time
}

// Controller maintains the groups of the shards it owns.
type Controller struct {
	store   *store.Client
	view    *view.View
	log     *slog.Logger
	limits  plan.Limits
	replica *store.Replica
	queue   *reconcile.Queue[fleet.GroupName]
	outages *outages
	stamps  *stamps
	empties *empties
	metrics *metrics
	// policies, webhooks and recorder serve the scaling policies of groups.
	policies *policies
	webhooks *webhook.Client
	recorder *replay.Ring
	// wall returns the wall clock, for times that are stored; began is its value at the
	// start.
	wall  func() time.Time
	began time.Time
	// ownership is what gained received last. It belongs to the replica's goroutine.
	ownership *store.Ownership
	// mass says whether there was a mass outage after the last batch. It belongs to the
	// view's goroutine.
	mass bool
}

// New creates a controller. It fails only if the metrics cannot be registered.
func New(cfg Config) (*Controller, error) {
	c := &Controller{store: cfg.Store, view: cfg.View, log: cfg.Log, limits: cfg.Limits, stamps: newStamps(), empties: newEmpties(), wall: cfg.Now}
	c.outages = newOutages(c.stamps)
	if c.wall == nil {
		c.wall = time.Now
	}
	c.began = c.wall()
	c.replica = &store.Replica{
		Client: cfg.Store, TTL: cfg.TTL, Takeover: cfg.Takeover, Claim: true, Gained: c.gained, Log: cfg.Log,
		Self: cluster.Session{Service: Service, Replica: cfg.Replica, Version: cfg.Version, StartedAt: c.began.UTC(), URL: cfg.URL, NodesURL: cfg.NodesURL},
	}
	var err error
	if c.metrics, err = newMetrics(cfg.Metrics, c); err != nil {
		return nil, errs.Wrap("controller.New", err)
	}
	c.policies, c.webhooks, c.recorder = newPolicies(), c.newWebhooks(), replay.NewRing()
	c.queue = reconcile.New(reconcile.Options[fleet.GroupName]{
		Name: Service, Reconcile: c.reconcile, Workers: workers, Timeout: passTimeout,
		Resync: resync, Keys: c.known, Random: random(), Observer: c.metrics, Log: cfg.Log,
	})
	cfg.View.Subscribe(c.changed)
	return c, nil
}

// now returns the time for measuring ages. It does not jump when the wall clock is set.
func (c *Controller) now() time.Time { return c.began.Add(c.wall().Sub(c.began)).Round(0) }

// Run works until ctx ends and then releases the shards at once.
func (c *Controller) Run(ctx context.Context) error {
	owning, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var ownership sync.WaitGroup
	ownership.Go(func() { _ = c.replica.Run(owning) }) // it ends only when canceled
	calling, hangUp := context.WithCancel(ctx)
	var webhooks sync.WaitGroup
	webhooks.Go(func() { c.webhooks.Run(calling) })
	err := c.queue.Run(ctx)
	hangUp()
	webhooks.Wait()
	release() // after the last pass, so that the successor sees its results
	ownership.Wait()
	return err
}

// gained queues the groups of newly owned shards. Queued groups of lost shards are skipped
// when their turn comes.
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

// known returns the owned groups: those with a record, and those with only instances.
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

// random returns a new random source for use by one goroutine.
func random() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }
