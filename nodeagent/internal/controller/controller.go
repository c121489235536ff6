// Package controller follows what the store says about one node and drives its
// instances.
//
// Invariants:
//   - Absence is no order: a placement whose record is gone keeps running, and so
//     does everything while the store is away. Only orders stop.
//   - Placements and orders are acted on only once the node has joined: before, they
//     may be another agent's that has the same node id.
//   - Statuses are written by one goroutine, the newest of each instance, compared
//     with the revision they were computed from and fenced by the node's session.
//   - Starting waits for no write.
package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/console"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/supervise"
)

// flushTimeout is how long a leaving agent tries to tell the store of its instances' ends.
const flushTimeout = 10 * time.Second

// Config is what a controller needs. All but Found are required.
type Config struct {
	Store *store.Client
	Node  fleet.NodeID
	// Kit is completed by New: Plan, Report and Forgotten are the controller's.
	Kit supervise.Kit
	// Fence proves the node's session; ok is false while there is none.
	Fence func() (f store.Fence, ok bool)
	// Doubt is called when something says that the session may be over though it is kept alive.
	Doubt func()
	// Found is what was found living at the start; see runtime.Runtime.
	Found map[fleet.InstanceID]runtime.Found
	Log   *slog.Logger
}

// Controller drives the instances of one node.
type Controller struct {
	cfg    Config
	kit    *supervise.Kit
	plans  *planCache
	writer *writer

	mu         sync.Mutex
	placements map[fleet.InstanceID]fleet.Placement
	orders     map[fleet.InstanceID]fleet.Order
	instances  map[fleet.InstanceID]*supervise.Instance
	closing    bool
	// lapsed is true once the deadline of exclusive instances has passed: what was found
	// at the start has outlived it then, also under a later session.
	lapsed bool
	// start runs an instance; nil before Run and after its end.
	start func(*supervise.Instance)
	// joined is closed when the node has joined for the first time, listed when the
	// placements were listed once and acted on.
	joined, listed         chan struct{}
	joinedOnce, listedOnce sync.Once
	// restarts counts the runs that the agent began in place by itself.
	restarts int
	// changed is signalled at every status, relist when all records are to be read anew.
	changed, relist chan struct{}
}

// New makes a controller that knows the journalled instances and waits for Run.
func New(cfg Config, entries []journal.Entry) *Controller {
	c := &Controller{
		cfg: cfg, plans: newPlanCache(cfg.Store),
		placements: map[fleet.InstanceID]fleet.Placement{}, orders: map[fleet.InstanceID]fleet.Order{},
		instances: map[fleet.InstanceID]*supervise.Instance{}, changed: make(chan struct{}, 1),
		relist: make(chan struct{}, 1), joined: make(chan struct{}), listed: make(chan struct{}),
	}
	c.writer = newWriter(cfg, c.tell)
	kit := cfg.Kit
	kit.Plan, kit.Claim, kit.Report, kit.Forgotten = c.plans.get, c.claim, c.report, c.forgotten
	c.kit = &kit
	for _, e := range entries {
		p := e.Machine.Placement
		c.instances[p.Instance] = supervise.Restore(c.kit, identified(e, cfg.Found[p.Instance]))
		if e.Machine.Status.State.Terminal() {
			c.writer.report(e.Machine.Status) // the agent may have died before it could tell
		}
	}
	return c
}

// Run drives the instances until ctx ends; then processes run on and every status
// that could be written has been.
func (c *Controller) Run(ctx context.Context) {
	driving, stop := context.WithCancel(ctx)
	var drivers, others sync.WaitGroup
	c.mu.Lock()
	c.start = func(i *supervise.Instance) { i.Release(); drivers.Go(func() { i.Run(driving) }) }
	for _, i := range c.instances {
		c.start(i)
	}
	c.mu.Unlock()

	others.Go(func() { c.writer.run(ctx) })
	others.Go(func() { c.writer.watchDoubts(ctx) })
	others.Go(func() { c.follow(ctx) })
	others.Wait()
	c.mu.Lock()
	c.start = nil
	c.mu.Unlock()
	stop()
	drivers.Wait()
}

// Joined makes the controller compare everything with the store under a new session.
// Under a later one than the first it also reads all records anew: while the node
// was cut off the store may have been restored or replaced, and its history with it.
func (c *Controller) Joined(store.Fence) {
	again := true
	c.joinedOnce.Do(func() { again = false; close(c.joined) })
	if again {
		signal(c.relist)
	}
	c.writer.joined()
}

// ReportAgain has all records read, and every status compared and written, once more: the
// store may have lost some though the session goes on.
func (c *Controller) ReportAgain() {
	signal(c.relist)
	c.writer.joined()
}

// StopAll stops every instance by its own policy, all at once, and returns when
// all have ended and their ends are written, or with ctx's error; a store that does
// not answer is not waited for long, since the journal keeps what it was not told.
// Nothing is started any more from then on.
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

// LongestStop is how long the most patient stop sequence of a living instance may take.
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
		if s := i.Live().Status.State; s != "" && !s.Terminal() {
			return false
		}
	}
	return true
}

// Instance finds an instance's driver. NotFound when the node does not have it.
func (c *Controller) Instance(id fleet.InstanceID) (*supervise.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.instances[id]; ok {
		return i, nil
	}
	return nil, errs.New(errs.NotFound, "instance %s is not on this node", id)
}

// LogPath is the file that holds an instance's output.
func (c *Controller) LogPath(id fleet.InstanceID) string { return c.kit.LogPath(id) }

// Logs tells of new output.
func (c *Controller) Logs() *console.Follower { return c.kit.Logs }

// RunDir is where the runtime keeps its files of an instance.
func (c *Controller) RunDir(id fleet.InstanceID) string { return c.kit.RunDir(id) }

// Instances counts the instances by state.
func (c *Controller) Instances() map[fleet.State]int {
	counts := map[fleet.State]int{}
	for _, l := range c.Live() {
		counts[l.Status.State]++
	}
	return counts
}

// Live is what is known of all instances now.
func (c *Controller) Live() map[fleet.InstanceID]supervise.Live {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[fleet.InstanceID]supervise.Live, len(c.instances))
	for id, i := range c.instances {
		all[id] = i.Live()
	}
	return all
}

// Ports are those of the instances that have not ended.
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

// Directories are the directories of each instance, except for those that are measured for
// a limit; see supervise.Instance.Directories.
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

// SetDiskUse sets how many bytes an instance's directories hold.
func (c *Controller) SetDiskUse(id string, used int64) {
	if i, err := c.Instance(fleet.InstanceID(id)); err == nil {
		i.SetDiskUse(used)
	}
}

// SetUse sets what an instance's run uses; see supervise.Instance.SetUse.
func (c *Controller) SetUse(id fleet.InstanceID, server int, u fleet.Usage) {
	if i, err := c.Instance(id); err == nil {
		i.SetUse(server, u)
	}
}

// Recall takes what the node's agent before this one reported of its instances.
func (c *Controller) Recall(r fleet.Report) {
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

// claim says in the store that an instance is about to start, on the condition that
// the node's session lives and the placement still stands: a decision to place it
// elsewhere that was made before compares the status and fails. NotFound when it
// was made already.
func (c *Controller) claim(ctx context.Context, p fleet.Placement) error {
	const op = "controller.claim"
	fence, ok := c.cfg.Fence()
	if !ok {
		return errNoSession
	}
	key := store.PlacementKey(c.cfg.Node, p.Instance)
	placement, err := store.Get(ctx, c.cfg.Store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap(op, err)
	}
	status, err := store.Get(ctx, c.cfg.Store, store.StatusKey(p.Instance))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap(op, err)
	}
	over := status.Generation == p.Generation && status.State.Terminal()
	if placement.Generation != p.Generation || status.Generation > p.Generation || over {
		return errs.New(errs.NotFound, "while the node was lost the instance was placed elsewhere, or given up")
	}
	rev := status.ModRev
	if status.Generation < p.Generation {
		status = fleet.Status{Instance: p.Instance, Group: p.Group, Node: p.Node, Generation: p.Generation}
	}
	status.Epoch, status.State, status.Reason, status.Message = fence.Epoch(), fleet.Preparing, fleet.ReasonPreparing, ""
	status.ChangedAt = c.kit.Now().UTC()
	_, err = c.cfg.Store.Commit(ctx, store.Txn{
		Fences: []store.Fence{fence}, Guards: []store.Guard{store.Unchanged(key, placement.ModRev)},
		Writes: []store.Write{store.Replace(store.StatusKey(p.Instance), status, rev)},
	})
	return errs.Wrap(op, err)
}

// tell passes on what the writer learned of an instance.
func (c *Controller) tell(id fleet.InstanceID, e machine.Event) {
	c.mu.Lock()
	i := c.instances[id]
	c.mu.Unlock()
	if i != nil {
		i.Send(e)
	}
}

// forgotten drops an instance of which nothing is left, and begins anew if it was
// placed again meanwhile.
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

// place tells an instance of its placement, making it if it is new. c.mu is held.
func (c *Controller) place(p fleet.Placement) {
	i, ok := c.instances[p.Instance]
	if !ok {
		if c.start == nil || c.closing {
			return
		}
		i = supervise.New(c.kit, p.Instance)
		c.begin(p.Instance, i)
	}
	i.Send(machine.Placed{Placement: p})
}

// begin takes an instance in and drives it, under the order that came before it. c.mu is held.
func (c *Controller) begin(id fleet.InstanceID, i *supervise.Instance) {
	c.instances[id] = i
	if o, ok := c.orders[id]; ok {
		i.Send(machine.Ordered{Order: o})
	}
	c.start(i)
}
