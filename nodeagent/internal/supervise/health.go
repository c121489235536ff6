package supervise

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/health"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/workspace"
)

// hosts are where the servers of a plan may listen on this node: where a container's
// ports were published, else on loopback or on the very address they are advertised under.
func hosts(plan fleet.Plan, p fleet.Placement, node fleet.Node, apiURL string) []string {
	values, address, _ := workspace.Values(plan, p, node, apiURL)
	if c := containerOf(plan, p, values, address); c != nil && c.Publishes() {
		if on := c.PublishedOn(); !on.IsUnspecified() {
			return []string{on.String()}
		}
		return []string{runtime.Loopback}
	}
	all := []string{runtime.Loopback}
	if own, ok := runtime.OwnAddress(address); ok && address != runtime.Loopback {
		all = append(all, own.String())
	}
	return all
}

// server is the running process as it can be asked.
func (i *Instance) server() health.Server {
	m := i.entry.Machine
	p := m.Placement
	i.mu.Lock()
	pulse := i.pulse
	i.mu.Unlock()
	return health.Server{
		Hosts: hosts(m.Plan, p, i.kit.Node(), i.kit.APIURL()), Port: p.Port, Ports: p.Ports, Log: i.kit.LogPath(i.id), LogFrom: i.entry.LogFrom, Logs: i.kit.Logs,
		Pulse: pulse, Ping: m.Plan.Asked(), Heard: i.count, Unready: i.notReady,
	}
}

// answerable refuses a run that could never be ready, or never be well.
func answerable(plan fleet.Plan, p fleet.Placement) error {
	for name, c := range map[string]fleet.Check{"readiness": plan.Readiness, "liveness": plan.Liveness.Check} {
		if err := health.Answerable(c, p.Port, p.Ports); err != nil {
			return errs.New(errs.Invalid, "its %s, a check of type %s, can never be passed: %s; correct the group's %s, or give it the port",
				name, c.Type, errs.MessageOf(err), name)
		}
	}
	return nil
}

// awaitReady runs the readiness check until it passes, or the process is stopped or ends.
func (i *Instance) awaitReady(ctx context.Context, run int) {
	ctx = i.whileWatched(ctx)
	s, check := i.server(), i.entry.Machine.Plan.Readiness
	i.helpers.Go(func() {
		switch err := health.AwaitReady(ctx, s, check); {
		case err == nil:
			i.Send(machine.Ready{Run: run})
		case ctx.Err() == nil:
			i.log.Error("it can never be ready", "error", err)
		}
	})
}

// watch asks the server how it is until it is stopped or ends.
func (i *Instance) watch(ctx context.Context, run int) {
	ctx = i.whileWatched(ctx)
	s, plan := i.server(), i.entry.Machine.Plan
	i.helpers.Go(func() {
		health.Watch(ctx, s, plan.Liveness, i.kit.Door.Open, func(v health.Verdict) {
			if v.Sick {
				i.Send(machine.Unhealthy{Run: run, Message: v.Why})
				return
			}
			i.Send(machine.Healthy{Run: run})
		})
	})
	if counts(plan) {
		i.helpers.Go(func() { health.Census(ctx, s, plan.Asked()) })
	}
}

// counts reports whether players are told by asking as at the start, and by nothing else.
func counts(p fleet.Plan) bool {
	return p.Asked().Type.TellsPlayers() && p.Readiness.Type != fleet.CheckHeartbeat && !p.Liveness.Type.TellsPlayers()
}

// whileWatched is a context that ends when nobody shall ask the process any more.
func (i *Instance) whileWatched(ctx context.Context) context.Context {
	i.unwatch()
	ctx, i.watched = context.WithCancel(ctx)
	return ctx
}

// unwatch ends whatever asks the process how it is.
func (i *Instance) unwatch() {
	if i.watched != nil {
		i.watched()
		i.watched = nil
	}
}

// count takes what the server answered when it was asked for its players.
func (i *Instance) count(players, maxPlayers int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.live.Report.Players, i.live.Report.MaxPlayers, i.live.Report.PlayersKnown = players, maxPlayers, true
}

// notReady notes why the server is not ready yet.
func (i *Instance) notReady(why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unready = why
}

// elapsed is the event of the timer that has run out.
func (i *Instance) elapsed() machine.Elapsed {
	e := i.due
	if e.Timer == machine.StartTimer {
		i.mu.Lock()
		e.Why = i.unready
		i.mu.Unlock()
	}
	return e
}
