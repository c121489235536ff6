package controller

import (
	"context"
	"maps"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/supervise"
)

// identified adds what was found of an instance to an entry whose agent died
// before it could journal the process: what runs is adopted, not ended.
func identified(e journal.Entry, f runtime.Found) journal.Entry {
	if e.ProcessRun != e.Machine.Run && e.Machine.Alive && f.Identity.Server.PID != 0 {
		e.Process, e.ProcessRun = f.Identity, e.Machine.Run
	}
	return e
}

// begun is what the store, and this host, know of an instance that is missing from the journal.
type begun struct {
	placement fleet.Placement
	status    fleet.Status
	plan      fleet.Plan
}

// begunBefore looks up the placements that are not known here although an earlier
// agent had begun with them: their statuses say so, or something of them lives.
// With the rest nobody had.
func (h placementHandler) begunBefore(placements map[fleet.InstanceID]fleet.Placement) map[fleet.InstanceID]begun {
	all := map[fleet.InstanceID]begun{}
	for id, p := range placements {
		if _, err := h.Instance(id); err == nil {
			continue
		}
		s, err := patiently(h.ctx, func() (fleet.Status, error) { return store.Get(h.ctx, h.cfg.Store, store.StatusKey(id)) })
		b := begun{placement: p, status: s}
		_, lives := h.cfg.Found[id]
		switch {
		case err == nil && s.Generation >= p.Generation:
		case !lives:
			continue
		case err == nil && !s.State.Terminal(): // what lives is of the generation before; the placed one follows its end
			b.placement.Generation = s.Generation
		default: // it died before it could tell
			b.status = fleet.Status{Instance: id, Group: p.Group, Node: p.Node, Generation: p.Generation, State: fleet.Preparing, Reason: fleet.ReasonPreparing}
		}
		b.plan, err = patiently(h.ctx, func() (fleet.Plan, error) { return h.plans.get(h.ctx, p.Plan) })
		if err != nil && h.ctx.Err() == nil {
			h.cfg.Log.Error("the plan of an instance that is missing from the journal could not be read: it will be stopped by a signal only", "instance", string(id), "error", err)
		}
		all[id] = b
	}
	return all
}

// patiently reads again and again while the store is away.
func patiently[T any](ctx context.Context, read func() (T, error)) (T, error) {
	v, err := read()
	for errs.Is(err, errs.Unavailable) && ctx.Err() == nil {
		pause.For(ctx, firstRetry)
		v, err = read()
	}
	return v, err
}

// resume takes up an instance that is missing from the journal from its records
// and what was found of it. c.mu is held.
func (c *Controller) resume(b begun) {
	if c.start == nil {
		return
	}
	id := b.placement.Instance
	found := c.cfg.Found[id]
	e := journal.Entry{Machine: machine.Resume(b.placement, b.plan, b.status)}
	if found.Identity.Server.PID != 0 {
		e.Process, e.ProcessRun = found.Identity, e.Machine.Run
		e.Token = variable(found.Env, "ORRERY_TOKEN")
	}
	if e.Token == "" {
		e.Machine.TokenHash = ""
	}
	c.cfg.Log.Warn("an instance is missing from the journal: it is taken up from the store's records and what runs of it",
		"instance", string(id), "state", string(b.status.State), "processes", found.Processes)
	over := b.status.State.Terminal() && found.Processes > 0
	if over {
		e.Machine.Phase, e.Machine.Alive = machine.Online, true
	}
	i := supervise.Restore(c.kit, e)
	outlived := c.lapsed && found.Processes > 0 // it ran before this agent did
	if outlived || c.kit.Tenure.Stage() == deadline.Lapsed {
		i.Send(machine.Expiring{Force: true})
	}
	if over {
		i.Send(machine.Superseded{Generation: b.status.Generation})
	}
	c.begin(id, i)
}

// variable is the value of a variable in an environment; empty when it is not there.
func variable(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// takeUp acts on placements: what was begun before is resumed, the rest placed. c.mu is held.
func (c *Controller) takeUp(placements map[fleet.InstanceID]fleet.Placement, before map[fleet.InstanceID]begun) {
	for id, p := range placements {
		if b, ok := before[id]; ok && c.instances[id] == nil {
			c.resume(b)
		}
		c.place(p)
	}
}

// foundAmong are the placements that are not known here although something of them lives.
func (h placementHandler) foundAmong(changes []store.Change) map[fleet.InstanceID]fleet.Placement {
	if len(h.cfg.Found) == 0 {
		return nil
	}
	among := map[fleet.InstanceID]fleet.Placement{}
	for _, ch := range changes {
		if ch.Removed {
			continue
		}
		if p, ok := decode[fleet.Placement](h.Controller, ch.KeyValue); ok {
			among[p.Instance] = p
		}
	}
	maps.DeleteFunc(among, func(id fleet.InstanceID, _ fleet.Placement) bool { _, ok := h.cfg.Found[id]; return !ok })
	return among
}
