package controller

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
)

const (
	// manyOrders is from how many stops at once on it is told that they are most of a node's.
	manyOrders = 5
	// named is how many instances one line of the log names.
	named = 20
)

// follow follows the node's placements and orders from the first join until ctx
// ends, from the beginning whenever that is asked for.
func (c *Controller) follow(ctx context.Context) {
	select {
	case <-c.joined:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		round, cancel := context.WithCancel(ctx)
		// Nothing is started before the orders were listed: it may have to be stopped.
		known := make(chan struct{})
		orders := orderHandler{c, sync.OnceFunc(func() { close(known) })}
		var both sync.WaitGroup
		both.Go(func() {
			_ = c.cfg.Store.Follow(round, store.PlacementsOn(c.cfg.Node).String(), placementHandler{c, round, known})
		})
		both.Go(func() { _ = c.cfg.Store.Follow(round, store.OrdersOn(c.cfg.Node).String(), orders) })
		select {
		case <-ctx.Done():
		case <-c.relist:
		}
		cancel()
		both.Wait()
	}
}

// placementHandler feeds the node's placements to the controller.
type placementHandler struct {
	*Controller
	ctx context.Context
	// ordersKnown is closed when the orders were listed.
	ordersKnown <-chan struct{}
}

// Reset compares all placements with what is known. One that is new here may have
// been begun by an earlier agent whose journal was lost, so its status is looked at first.
func (h placementHandler) Reset(kvs []store.KeyValue, _ int64) {
	listed := map[fleet.InstanceID]fleet.Placement{}
	for _, kv := range kvs {
		if p, ok := decode[fleet.Placement](h.Controller, kv); ok {
			listed[p.Instance] = p
		}
	}
	select {
	case <-h.ordersKnown:
	case <-h.ctx.Done():
		return
	}
	before := h.begunBefore(listed)
	if h.ctx.Err() != nil { // what was not looked at must not be taken for new
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placements = listed
	var missing []fleet.InstanceID
	for id := range h.instances {
		if _, ok := listed[id]; !ok {
			missing = append(missing, id)
		}
	}
	h.gone(missing...)
	h.takeUp(listed, before)
	h.listedOnce.Do(func() { close(h.listed) })
}

// Apply takes changes of placements as they happen.
func (h placementHandler) Apply(changes []store.Change, _ int64) {
	before := h.begunBefore(h.foundAmong(changes))
	h.mu.Lock()
	defer h.mu.Unlock()
	var missing []fleet.InstanceID
	for _, ch := range changes {
		if ch.Removed {
			id := lastSegment(ch.Key)
			delete(h.placements, id)
			if h.instances[id] != nil {
				missing = append(missing, id)
			}
			continue
		}
		if p, ok := decode[fleet.Placement](h.Controller, ch.KeyValue); ok {
			h.placements[p.Instance] = p
			h.takeUp(map[fleet.InstanceID]fleet.Placement{p.Instance: p}, before)
		}
	}
	h.gone(slices.DeleteFunc(missing, func(id fleet.InstanceID) bool {
		_, back := h.placements[id]
		return back
	})...)
}

// gone says that the records of instances are missing. c.mu is held.
func (c *Controller) gone(ids ...fleet.InstanceID) {
	var orphans []string
	for _, id := range ids {
		i := c.instances[id]
		if l := i.Live(); l.Status.State.Running() && !l.Orphan {
			orphans = append(orphans, string(id))
		}
		i.Send(machine.Removed{})
	}
	if len(orphans) > 0 {
		c.cfg.Doubt() // whoever removed these may have removed more
		slices.Sort(orphans)
		c.cfg.Log.Warn("instances run without a record and are left alone (nodeagent local list shows them)",
			"orphans", len(orphans), "of", len(c.instances), "instances", orphans[:min(len(orphans), named)])
	}
}

// orderHandler feeds the node's orders to the controller.
type orderHandler struct {
	*Controller
	// known is called when the orders were listed.
	known func()
}

// Reset takes all orders. They are obeyed however many there are: each is a record
// somebody wrote, and the one who wrote it saw the whole fleet. That most of a node
// ends at once is told.
func (h orderHandler) Reset(kvs []store.KeyValue, _ int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.orders
	h.orders = map[fleet.InstanceID]fleet.Order{}
	for _, kv := range kvs {
		h.order(kv)
	}
	h.tellOfMany(before)
	h.known()
}

// tellOfMany warns when most of what runs was ordered to end while the orders could
// not be seen. c.mu is held.
func (c *Controller) tellOfMany(before map[fleet.InstanceID]fleet.Order) {
	running, ending := 0, 0
	reasons := map[fleet.Reason]int{}
	for id, i := range c.instances {
		s := i.Live().Status
		if !s.State.Running() {
			continue
		}
		running++
		o, ok := c.orders[id]
		if ok && o.Generation == s.Generation && before[id].Generation != o.Generation {
			ending++
			reasons[o.Reason]++
		}
	}
	if ending >= manyOrders && 2*ending > running {
		c.cfg.Log.Warn("most of what runs here was ordered to stop while the orders could not be seen",
			"stopping", ending, "running", running, "reasons", reasons)
	}
}

// Apply takes changes of orders as they happen.
func (h orderHandler) Apply(changes []store.Change, _ int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ch := range changes {
		if ch.Removed {
			delete(h.orders, lastSegment(ch.Key))
			continue
		}
		h.order(ch.KeyValue)
	}
}

func (h orderHandler) order(kv store.KeyValue) {
	o, ok := decode[fleet.Order](h.Controller, kv)
	if !ok {
		return
	}
	h.orders[o.Instance] = o
	if i, ok := h.instances[o.Instance]; ok {
		i.Send(machine.Ordered{Order: o})
	}
}

// decode reads a record; one that cannot be read is logged and left out.
func decode[T any](c *Controller, kv store.KeyValue) (T, bool) {
	v, err := store.Decode[T](kv)
	if err != nil {
		c.cfg.Log.Error("record not understood", "key", kv.Key, "error", err)
		return v, false
	}
	return v, true
}

func lastSegment(key string) fleet.InstanceID {
	return fleet.InstanceID(key[strings.LastIndexByte(key, '/')+1:])
}

// maxPlans bounds the plans held in memory.
const maxPlans = 128

// planCache keeps plans, which never change.
type planCache struct {
	store *store.Client
	mu    sync.Mutex
	plans map[string]fleet.Plan
}

func newPlanCache(s *store.Client) *planCache {
	return &planCache{store: s, plans: map[string]fleet.Plan{}}
}

func (c *planCache) get(ctx context.Context, digest string) (fleet.Plan, error) {
	c.mu.Lock()
	p, ok := c.plans[digest]
	c.mu.Unlock()
	if ok {
		return p, nil
	}
	stored, err := store.Get(ctx, c.store, store.PlanKey(digest))
	if err != nil {
		return p, errs.Wrap("controller.plan", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.plans) >= maxPlans {
		clear(c.plans)
	}
	c.plans[digest] = stored.Plan
	return stored.Plan, nil
}
