package controller

import (
	"context"
	"maps"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// identified completes a journal entry whose agent died before it journalled the process:
// it adds the process that was found, so that the instance is adopted.
func identified(e journal.Entry, f runtime.Found) journal.Entry {
	if e.ProcessRun != e.Machine.Run && e.Machine.Alive && f.Identity.Server.PID != 0 {
		e.Process, e.ProcessRun = f.Identity, e.Machine.Run
	}
	return e
}

// begun is what the store and the host know about an instance that is missing from the journal.
type begun struct {
	placement fleet.Placement
	status    fleet.Status
	plan      fleet.Plan
}

// begunBefore finds the placements that an earlier agent had begun although this agent does
// not know them: their status says so, or some of their processes run.
func (h placementHandler) begunBefore(placements map[fleet.InstanceID]fleet.Placement) map[fleet.InstanceID]begun {
	all := map[fleet.InstanceID]begun{}
	for id, p := range placements {
		if _, err := h.Instance(id); err == nil {
			continue
		}
		s, err := retryUnavailable(h.ctx, func() (fleet.Status, error) { return store.Get(h.ctx, h.cfg.Store, keys.Status(id)) })
		b := begun{placement: p, status: s}
		_, lives := h.cfg.Found[id]
		switch {
		case err == nil && s.Generation >= p.Generation:
		case !lives:
			continue
		case err == nil && !s.State.Terminal(): // the processes are of the previous generation; the placed one follows when they end
			b.placement.Generation = s.Generation
		default: // the earlier agent died before it wrote a status
			b.status = fleet.Status{Instance: id, Group: p.Group, Node: p.Node, Generation: p.Generation, State: fleet.Preparing, Reason: fleet.ReasonPreparing}
		}
		b.plan, err = retryUnavailable(h.ctx, func() (fleet.Plan, error) { return h.plans.get(h.ctx, p.Plan) })
		if err != nil && h.ctx.Err() == nil {
			h.cfg.Log.Error("cannot read the plan of an instance that is missing from the journal: it will be stopped by a signal only", "instance", string(id), "error", err)
		}
		all[id] = b
	}
	return all
}

// retryUnavailable retries a read while the store is unavailable.
func retryUnavailable[T any](ctx context.Context, read func() (T, error)) (T, error) {
	v, err := read()
	for errs.Is(err, errs.Unavailable) && ctx.Err() == nil {
		pause.For(ctx, firstRetry)
		v, err = read()
	}
	return v, err
}

// resume restores an instance that is missing from the journal from its records and its
// processes. c.mu is held.
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
	c.cfg.Log.Warn("an instance is missing from the journal: it is restored from the store's records and its processes",
		"instance", string(id), "state", string(b.status.State), "processes", found.Processes)
	over := b.status.State.Terminal() && found.Processes > 0
	if over {
		e.Machine.Phase, e.Machine.Alive = machine.Online, true
	}
	i := driver.Restore(c.deps, e)
	outlived := c.lapsed && found.Processes > 0 // it ran before this agent did
	if outlived || c.deps.Deadline.Stage() == deadline.Lapsed {
		i.Send(machine.Expiring{Force: true})
	}
	if over {
		i.Send(machine.Superseded{Generation: b.status.Generation})
	}
	c.begin(id, i)
}

// variable is the value of a variable in an environment; empty if it is not set.
func variable(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// resumeOrPlace resumes the placements that were begun before and places the others. c.mu is held.
func (c *Controller) resumeOrPlace(placements map[fleet.InstanceID]fleet.Placement, before map[fleet.InstanceID]begun) {
	for id, p := range placements {
		if b, ok := before[id]; ok && c.instances[id] == nil {
			c.resume(b)
		}
		c.place(p)
	}
}

// withProcesses selects the changed placements with processes that ran when the agent started.
func (h placementHandler) withProcesses(changes []store.Change) map[fleet.InstanceID]fleet.Placement {
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
