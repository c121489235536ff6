// Package controller follows the placements and orders of one node and drives its
// instances.
//
// Invariants:
//   - A missing record is not an order: an instance whose placement is gone keeps running,
//     as does everything while the store is unavailable. Only orders stop instances.
//   - The controller acts on placements and orders only after the node has joined: until
//     then they may belong to another agent with the same node id.
//   - One goroutine writes the statuses: the newest of each instance, compared with the
//     revision it was computed from and fenced by the node's session.
//   - Starting an instance does not wait for a write.
package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// flushTimeout bounds how long a leaving agent tries to write the ends of its instances.
const flushTimeout = 10 * time.Second

// Config configures a Controller. All fields but Found are required.
type Config struct {
	Store *store.Client
	Node  fleet.NodeID
	// Deps is completed by New, which sets Plan, Claim, Report and Forgotten.
	Deps driver.Deps
	// Fence proves the node's session; ok is false without a session.
	Fence func() (f store.Fence, ok bool)
	// CheckSession is called on a sign that the session is over although its keep-alives are answered.
	CheckSession func()
	// Found are the instances that ran when the agent started; see runtime.Runtime.
	Found map[fleet.InstanceID]runtime.Found
	Log   *slog.Logger
}

// Controller drives the instances of one node.
type Controller struct {
	cfg    Config
	deps   *driver.Deps
	plans  *planCache
	writer *writer

	mu         sync.Mutex
	placements map[fleet.InstanceID]fleet.Placement
	orders     map[fleet.InstanceID]fleet.Order
	instances  map[fleet.InstanceID]*driver.Instance
	closing    bool
	// lapsed is set when the deadline of exclusive instances passes. An instance that was
	// found at the start has outlived the deadline then, even if a new session begins.
	lapsed bool
	// start runs an instance; nil before Run and after its end.
	start func(*driver.Instance)
	// joined is closed when the node joins for the first time, and listed when the first
	// list of placements was processed.
	joined, listed         chan struct{}
	joinedOnce, listedOnce sync.Once
	// restarts counts the restarts in place that the agent started by itself.
	restarts int
	// changed is signalled on every status, and relist to read all records again.
	changed, relist chan struct{}
}

// New returns a controller with the journalled instances. Run starts them.
func New(cfg Config, entries []journal.Entry) *Controller {
	c := &Controller{
		cfg: cfg, plans: newPlanCache(cfg.Store),
		placements: map[fleet.InstanceID]fleet.Placement{}, orders: map[fleet.InstanceID]fleet.Order{},
		instances: map[fleet.InstanceID]*driver.Instance{}, changed: make(chan struct{}, 1),
		relist: make(chan struct{}, 1), joined: make(chan struct{}), listed: make(chan struct{}),
	}
	c.writer = newWriter(cfg, c.send)
	deps := cfg.Deps
	deps.Plan, deps.Claim, deps.Report, deps.Forgotten = c.plans.get, c.claim, c.report, c.forgotten
	deps.UsedByOther = c.usedByOther
	c.deps = &deps
	for _, e := range entries {
		p := e.Machine.Placement
		c.instances[p.Instance] = driver.Restore(c.deps, identified(e, cfg.Found[p.Instance]))
		if s := e.Machine.Status.State; s.Terminal() || s == fleet.Sleeping {
			c.writer.report(e.Machine.Status) // the last agent may have died before it wrote this
		}
	}
	return c
}

// Run drives the instances until ctx ends. Processes keep running after that.
func (c *Controller) Run(ctx context.Context) {
	driving, stop := context.WithCancel(ctx)
	var drivers, others sync.WaitGroup
	c.mu.Lock()
	c.start = func(i *driver.Instance) { i.Release(); drivers.Go(func() { i.Run(driving) }) }
	for _, i := range c.instances {
		c.start(i)
	}
	c.mu.Unlock()

	others.Go(func() { c.writer.run(ctx) })
	others.Go(func() { c.writer.watchUnwritten(ctx) })
	others.Go(func() { c.follow(ctx) })
	others.Wait()
	c.mu.Lock()
	c.start = nil
	c.mu.Unlock()
	stop()
	drivers.Wait()
}

// Joined compares all statuses with the store under a new session. After a rejoin it also
// reads all records again, because the store may have been restored or replaced while the
// node was cut off.
func (c *Controller) Joined() {
	again := true
	c.joinedOnce.Do(func() { again = false; close(c.joined) })
	if again {
		signal(c.relist)
	}
	c.writer.joined()
}

// ReportAgain reads all records again and compares and writes every status, because the
// store may have lost some during the session.
func (c *Controller) ReportAgain() {
	signal(c.relist)
	c.writer.joined()
}

// StopAll stops every instance in parallel by its own policy. From then on the controller
// starts nothing. It returns when all instances have ended and their ends are written, or
// with ctx's error. It waits at most flushTimeout for the store: the journal keeps the rest.
func (c *Controller) StopAll(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	for _, i := range c.instances {
		i.Send(machine.Shutdown{})
	}
	c.mu.Unlock()
	for !c.allEnded() {
		select {
		case <-c.changed:
		case <-ctx.Done():
			return errs.Wrap("controller.StopAll", ctx.Err())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return c.writer.flush(ctx)
}

// LongestStop is the longest stop grace of a running instance.
func (c *Controller) LongestStop() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var longest time.Duration
	for _, i := range c.instances {
		longest = max(longest, i.Live().Grace)
	}
	return longest
}

func (c *Controller) allEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.instances {
		if s := i.Live().Status.State; s != "" && !s.Terminal() && s != fleet.Sleeping {
			return false
		}
	}
	return true
}

// Instance returns an instance's driver. NotFound if the node does not have it.
func (c *Controller) Instance(id fleet.InstanceID) (*driver.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.instances[id]; ok {
		return i, nil
	}
	return nil, errs.New(errs.NotFound, "instance %s is not on this node", id)
}

// LogPath is the path of an instance's output.
func (c *Controller) LogPath(id fleet.InstanceID) string { return c.deps.LogPath(id) }

// Logs notifies about new output.
func (c *Controller) Logs() *console.Follower { return c.deps.Logs }

// RunDir is the directory of the runtime's files of an instance.
func (c *Controller) RunDir(id fleet.InstanceID) string { return c.deps.RunDir(id) }

// Instances counts the instances by state.
func (c *Controller) Instances() map[fleet.State]int {
	counts := map[fleet.State]int{}
	for _, l := range c.Live() {
		counts[l.Status.State]++
	}
	return counts
}

// Live is a snapshot of all instances.
func (c *Controller) Live() map[fleet.InstanceID]driver.Live {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[fleet.InstanceID]driver.Live, len(c.instances))
	for id, i := range c.instances {
		all[id] = i.Live()
	}
	return all
}

// Ports are the ports of the instances that have not ended.
func (c *Controller) Ports() map[int]bool {
	all := map[int]bool{}
	for _, l := range c.Live() {
		if l.Status.State.Terminal() {
			continue
		}
		all[l.Port] = true
		for _, p := range l.Ports {
			all[p] = true
		}
	}
	return all
}

// usedByOther is driver.Deps.UsedByOther.
func (c *Controller) usedByOther(port int, than fleet.InstanceID) bool {
	for id, l := range c.Live() {
		if id != than && l.Status.PID != 0 && l.Uses(port) {
			return true
		}
	}
	return false
}

// Directories are the directories of each instance, except those that are measured for
// a limit; see driver.Instance.Directories.
func (c *Controller) Directories() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]string{}
	for id, i := range c.instances {
		if dirs := i.Directories(); dirs != nil {
			all[string(id)] = dirs
		}
	}
	return all
}

// SetDiskUse sets the size of an instance's directories in bytes.
func (c *Controller) SetDiskUse(id string, used int64) {
	if i, err := c.Instance(fleet.InstanceID(id)); err == nil {
		i.SetDiskUse(used)
	}
}

// SetUse sets the resource usage of an instance's run; see driver.Instance.SetUse.
func (c *Controller) SetUse(id fleet.InstanceID, server int, u reports.Usage) {
	if i, err := c.Instance(id); err == nil {
		i.SetUse(server, u)
	}
}

// Recall restores the figures that the previous agent reported.
func (c *Controller) Recall(r reports.Report) {
	for id, said := range r.Instances {
		if i, err := c.Instance(id); err == nil {
			i.Recall(said, r.At)
		}
	}
}

func (c *Controller) report(s fleet.Status) {
	c.writer.report(s)
	if s.State == fleet.Starting && s.Reason == fleet.ReasonRestartedInPlace && s.PID == 0 {
		c.mu.Lock()
		c.restarts++
		c.mu.Unlock()
	}
	signal(c.changed)
}

// claim writes that an instance is about to start, provided the node's session lives and
// the placement is unchanged. A concurrent decision to place the instance elsewhere
// compares the status and fails. NotFound if such a decision was made before.
func (c *Controller) claim(ctx context.Context, p fleet.Placement) error {
	const op = "controller.claim"
	fence, ok := c.cfg.Fence()
	if !ok {
		return errNoSession
	}
	key := keys.Placement(c.cfg.Node, p.Instance)
	placement, err := store.Get(ctx, c.cfg.Store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap(op, err)
	}
	status, err := store.Get(ctx, c.cfg.Store, keys.Status(p.Instance))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap(op, err)
	}
	over := status.Generation == p.Generation && status.State.Terminal()
	if placement.Generation != p.Generation || status.Generation > p.Generation || over {
		return errs.New(errs.NotFound, "the instance was placed elsewhere or abandoned while the node was lost")
	}
	rev := status.ModRev
	if status.Generation < p.Generation {
		status = fleet.Status{Instance: p.Instance, Group: p.Group, Node: p.Node, Generation: p.Generation}
	}
	status.Epoch, status.State, status.Reason, status.Message = fence.Epoch(), fleet.Preparing, fleet.ReasonPreparing, ""
	status.ChangedAt = c.deps.Now().UTC()
	_, err = c.cfg.Store.Commit(ctx, store.Txn{
		Fences: []store.Fence{fence}, Guards: []store.Guard{store.Unchanged(key, placement.ModRev)},
		Writes: []store.Write{store.Replace(keys.Status(p.Instance), status, rev)},
	})
	return errs.Wrap(op, err)
}

// send passes an event from the writer to an instance.
func (c *Controller) send(id fleet.InstanceID, e machine.Event) {
	c.mu.Lock()
	i := c.instances[id]
	c.mu.Unlock()
	if i != nil {
		i.Send(e)
	}
}

// forgotten drops an instance that its driver has finished with. If it was placed again
// meanwhile, it starts again.
func (c *Controller) forgotten(id fleet.InstanceID) {
	c.writer.forget(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.instances, id)
	if p, ok := c.placements[id]; ok {
		c.place(p)
	}
	signal(c.changed)
}

// place sends an instance its placement and creates the instance if it is new. c.mu is held.
func (c *Controller) place(p fleet.Placement) {
	i, ok := c.instances[p.Instance]
	if !ok {
		if c.start == nil || c.closing {
			return
		}
		i = driver.New(c.deps, p.Instance)
		c.begin(p.Instance, i)
	}
	i.Send(machine.Placed{Placement: p})
}

// begin registers an instance and runs its driver, after sending it its order if any. c.mu is held.
func (c *Controller) begin(id fleet.InstanceID, i *driver.Instance) {
	c.instances[id] = i
	if o, ok := c.orders[id]; ok {
		i.Send(machine.Ordered{Order: o})
	}
	c.start(i)
}
