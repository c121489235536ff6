package controller

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

const (
	// massStop is the least number of simultaneous stops that is worth a warning.
	massStop = 5
	// maxNamed bounds the instances that one log line names.
	maxNamed = 20
)

// follow follows the node's placements and orders from the first join until ctx ends.
// relist makes it start from the beginning.
func (c *Controller) follow(ctx context.Context) {
	select {
	case <-c.joined:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		round, cancel := context.WithCancel(ctx)
		// The orders come first: a placed instance may be ordered to stop.
		known := make(chan struct{})
		orders := orderHandler{c, sync.OnceFunc(func() { close(known) })}
		var both sync.WaitGroup
		both.Go(func() {
			_ = c.cfg.Store.Follow(round, keys.PlacementsOn(c.cfg.Node).String(), placementHandler{c, round, known})
		})
		both.Go(func() { _ = c.cfg.Store.Follow(round, keys.OrdersOn(c.cfg.Node).String(), orders) })
		select {
		case <-ctx.Done():
		case <-c.relist:
		}
		cancel()
		both.Wait()
	}
}

// placementHandler passes the node's placements to the controller.
type placementHandler struct {
	*Controller
	ctx context.Context
	// ordersKnown is closed when the orders are listed.
	ordersKnown <-chan struct{}
}

// Reset compares all placements with the known instances. An unknown instance may have been
// started by an earlier agent whose journal was lost, so its status is read first.
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
	if h.ctx.Err() != nil { // an unread status must not look like a new instance
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
	h.removed(missing...)
	h.resumeOrPlace(listed, before)
	h.listedOnce.Do(func() { close(h.listed) })
}

// Apply handles changes of placements.
func (h placementHandler) Apply(changes []store.Change, _ int64) {
	before := h.begunBefore(h.withProcesses(changes))
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
			h.resumeOrPlace(map[fleet.InstanceID]fleet.Placement{p.Instance: p}, before)
		}
	}
	h.removed(slices.DeleteFunc(missing, func(id fleet.InstanceID) bool {
		_, back := h.placements[id]
		return back
	})...)
}

// removed tells instances that their placements are missing. c.mu is held.
func (c *Controller) removed(ids ...fleet.InstanceID) {
	var orphans []string
	for _, id := range ids {
		i := c.instances[id]
		if l := i.Live(); l.Status.State.Running() && !l.Orphan {
			orphans = append(orphans, string(id))
		}
		i.Send(machine.Removed{})
	}
	if len(orphans) > 0 {
		c.cfg.CheckSession() // more records may have been removed, such as the session
		slices.Sort(orphans)
		c.cfg.Log.Warn("instances run without a record and are left running (nodeagent local list shows them)",
			"orphans", len(orphans), "of", len(c.instances), "instances", orphans[:min(len(orphans), maxNamed)])
	}
}

// orderHandler passes the node's orders to the controller.
type orderHandler struct {
	*Controller
	// known is called when the orders are listed.
	known func()
}

// Reset handles the list of all orders. It obeys all of them, however many there are: their
// author saw the whole fleet. It warns if most of a node is ordered to stop.
func (h orderHandler) Reset(kvs []store.KeyValue, _ int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.orders
	h.orders = map[fleet.InstanceID]fleet.Order{}
	for _, kv := range kvs {
		h.order(kv)
	}
	h.warnMassStop(before)
	h.known()
}

// warnMassStop warns if most of the running instances were ordered to stop while the node
// was cut off from the orders. c.mu is held.
func (c *Controller) warnMassStop(before map[fleet.InstanceID]fleet.Order) {
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
	if ending >= massStop && 2*ending > running {
		c.cfg.Log.Warn("most of the running instances were ordered to stop while the node could not read its orders",
			"stopping", ending, "running", running, "reasons", reasons)
	}
}

// Apply handles changes of orders.
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

// decode decodes a record. It logs and skips one that is invalid.
func decode[T any](c *Controller, kv store.KeyValue) (T, bool) {
	v, err := store.Decode[T](kv)
	if err != nil {
		c.cfg.Log.Error("cannot decode a record: it is ignored", "key", kv.Key, "error", err)
		return v, false
	}
	return v, true
}

func lastSegment(key string) fleet.InstanceID {
	return fleet.InstanceID(key[strings.LastIndexByte(key, '/')+1:])
}

// maxPlans bounds the plans in memory.
const maxPlans = 128

// planCache caches plans, which are immutable.
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
	stored, err := store.Get(ctx, c.store, keys.Plan(digest))
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
