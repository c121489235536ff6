package driver

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/health"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// hosts are the addresses on which the servers of a plan may listen: those that a container's
// ports are published on, otherwise loopback and the advertised address.
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

// server describes the running process for health checks.
func (i *Instance) server() health.Server {
	m := i.entry.Machine
	p := m.Placement
	i.mu.Lock()
	heartbeats := i.heartbeats
	i.mu.Unlock()
	return health.Server{
		Hosts: hosts(m.Plan, p, i.deps.Node(), i.deps.apiURL(m.Plan)), Port: p.Port, Ports: p.Ports, Log: i.deps.LogPath(i.id), LogFrom: i.entry.LogFrom, Logs: i.deps.Logs,
		Heartbeats: heartbeats, Ping: m.Plan.Asked(), OnPlayers: i.setPlayers, OnUnready: i.setUnready,
	}
}

// checkPossible returns an error if a check of the plan can never pass.
func checkPossible(plan fleet.Plan, p fleet.Placement) error {
	for name, c := range map[string]fleet.Check{"readiness": plan.Readiness, "liveness": plan.Liveness.Check} {
		if err := health.CheckPossible(c, p.Port, p.Ports); err != nil {
			return errs.New(errs.Invalid, "its %s, a check of type %s, can never pass: %s; correct the group's %s, or add the port",
				name, c.Type, errs.MessageOf(err), name)
		}
	}
	return nil
}

// awaitReady runs the readiness check until it passes or the process ends.
func (i *Instance) awaitReady(ctx context.Context, run int) {
	ctx = i.checksContext(ctx)
	s, check := i.server(), i.entry.Machine.Plan.Readiness
	i.helpers.Go(func() {
		switch err := health.AwaitReady(ctx, s, check); {
		case err == nil:
			i.Send(machine.Ready{Run: run})
		case ctx.Err() == nil:
			i.log.Error("the readiness check cannot pass", "error", err)
		}
	})
}

// watch runs the liveness check until the process ends.
func (i *Instance) watch(ctx context.Context, run int) {
	ctx = i.checksContext(ctx)
	s, plan := i.server(), i.entry.Machine.Plan
	i.helpers.Go(func() {
		health.Watch(ctx, s, plan.Liveness, i.deps.Gateway.Reachable, func(v health.Verdict) {
			if v.Unhealthy {
				i.Send(machine.Unhealthy{Run: run, Message: v.Why})
				return
			}
			i.Send(machine.Healthy{Run: run})
		})
	})
	if countsPlayers(plan) {
		i.helpers.Go(func() { health.WatchPlayers(ctx, s, plan.Asked()) })
	}
}

// countsPlayers reports whether players are counted by repeating the readiness check.
func countsPlayers(p fleet.Plan) bool {
	return p.Asked().Type.TellsPlayers() && p.Readiness.Type != fleet.CheckHeartbeat && !p.Liveness.Type.TellsPlayers()
}

// checksContext returns a context for health checks, which endChecks cancels.
func (i *Instance) checksContext(ctx context.Context) context.Context {
	i.endChecks()
	ctx, i.cancelChecks = context.WithCancel(ctx)
	return ctx
}

// endChecks ends the health checks.
func (i *Instance) endChecks() {
	if i.cancelChecks != nil {
		i.cancelChecks()
		i.cancelChecks = nil
	}
}

// setPlayers sets the number of players that a check returned.
func (i *Instance) setPlayers(players, maxPlayers int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.live.Report.Players, i.live.Report.MaxPlayers, i.live.Report.PlayersKnown = players, maxPlayers, true
}

// setUnready sets why the server is not ready yet.
func (i *Instance) setUnready(why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unready = why
}

// elapsed is the event of the timer that fired.
func (i *Instance) elapsed() machine.Elapsed {
	e := i.due
	if e.Timer == machine.StartTimer {
		i.mu.Lock()
		e.Why = i.unready
		i.mu.Unlock()
	}
	return e
}
