package controller

import (
	"context"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
)

// placementHandler feeds the node's placements to the controller.
type placementHandler struct {
	*Controller
	ctx context.Context
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
	begun := h.begunBefore(listed)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placements = listed
	for id, i := range h.instances {
		if _, ok := listed[id]; !ok {
			h.gone(id, i.Live().Status.State)
		}
	}
	for id, p := range listed {
		if s, ok := begun[id]; ok && h.instances[id] == nil {
			h.resume(p, s)
			continue
		}
		h.place(p)
	}
}

// begunBefore reads the statuses of placements that are not known here, as far as
// they are of the placed generation.
func (h placementHandler) begunBefore(listed map[fleet.InstanceID]fleet.Placement) map[fleet.InstanceID]fleet.Status {
	begun := map[fleet.InstanceID]fleet.Status{}
	for id, p := range listed {
		if _, err := h.Instance(id); err == nil {
			continue
		}
		s, err := store.Get(h.ctx, h.cfg.Store, store.StatusKey(id))
		for errs.Is(err, errs.Unavailable) && h.ctx.Err() == nil {
			pause(h.ctx, firstRetry)
			s, err = store.Get(h.ctx, h.cfg.Store, store.StatusKey(id))
		}
		if err == nil && s.Generation >= p.Generation {
			begun[id] = s
		}
	}
	return begun
}

// Apply takes changes of placements as they happen.
func (h placementHandler) Apply(changes []store.Change, _ int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ch := range changes {
		if ch.Removed {
			id := lastSegment(ch.Key)
			delete(h.placements, id)
			if i, ok := h.instances[id]; ok {
				h.gone(id, i.Live().Status.State)
			}
			continue
		}
		if p, ok := decode[fleet.Placement](h.Controller, ch.KeyValue); ok {
			h.placements[p.Instance] = p
			h.place(p)
		}
	}
}

// gone says that a placement's record is missing. c.mu is held.
func (c *Controller) gone(id fleet.InstanceID, state fleet.State) {
	if state.Running() {
		c.cfg.Log.Warn("orphan: an instance runs without a record and is left alone", "instance", string(id), "state", string(state))
	}
	c.instances[id].Send(machine.Removed{})
}

// orderHandler feeds the node's orders to the controller.
type orderHandler struct{ *Controller }

// Reset takes all orders.
func (h orderHandler) Reset(kvs []store.KeyValue, _ int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.orders)
	for _, kv := range kvs {
		h.order(kv)
	}
	h.ordersOnce.Do(func() { close(h.ordersKnown) })
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
