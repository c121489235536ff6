package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ports"
)

// The pause between two probes of a port doubles from firstProbe to lastProbe.
const (
	firstProbe = 5 * time.Millisecond
	lastProbe  = 500 * time.Millisecond
)

// awaitPorts returns when the ports of an instance are free. It waits up to fleet.PortPatience for
// a server of another instance, and for leftover connections of an earlier program if the instance
// has to keep its port. Exhausted if a port is in use.
func (i *Instance) awaitPorts(ctx context.Context, s machine.State) error {
	deadline, reported := time.Now().Add(fleet.PortPatience), false
	for _, port := range allPorts(s.Placement) {
		for wait := firstProbe; ; wait = min(2*wait, lastProbe) {
			busy, err := ports.Probe(port)
			// The scheduler gave the port to this instance, so another one that has it is about to be stopped.
			other := busy != nil && i.deps.UsedByOther(port, i.id)
			if busy != nil && !other { // the other one may have ended since the probe
				busy, err = ports.Probe(port)
			}
			if err != nil {
				return err
			}
			if busy == nil {
				break
			}
			if !other && (!busy.Leftover() || !pinned(s, port)) {
				return i.blockPort(ctx, busy)
			}
			if time.Now().After(deadline) {
				if other {
					return i.blockPort(ctx, busy)
				}
				return errs.New(errs.Exhausted, "%v; the agent has waited %v for it: make the server set SO_REUSEADDR", busy, fleet.PortPatience)
			}
			if !reported {
				reported = true
				i.Send(machine.Delayed{Run: s.Run, Message: fmt.Sprintf("%v; the server starts as soon as the port is free", busy)})
			}
			if !pause.For(ctx, wait) {
				return errs.WrapAs(errs.Unavailable, "driver.awaitPorts", ctx.Err())
			}
		}
	}
	return nil
}

// blockPort makes the scheduler avoid a port and returns the error of the start.
func (i *Instance) blockPort(ctx context.Context, busy *ports.Busy) error {
	blocked := fleet.BlockedPort{Port: busy.Port, By: busy.By(), Until: i.deps.Now().UTC().Add(fleet.PortBlockedFor)}
	i.deps.Block(ctx, blocked)
	return errs.New(errs.Exhausted, "%v; the scheduler avoids it on this node until it is free, or until %s UTC", busy, blocked.Until.Format(time.TimeOnly))
}

// pinned reports whether an instance has to use the port that it was given: a static
// instance, a restart in place or after sleep, or a group with a single port.
func pinned(s machine.State, port int) bool {
	if s.Plan.Static || s.Status.Restarts > 0 || s.Slept {
		return true
	}
	if port == s.Placement.Port {
		return s.Plan.Ports.Len() <= 1
	}
	return !slices.ContainsFunc(s.Plan.AdditionalPorts, func(p fleet.NamedPort) bool {
		return s.Placement.Ports[p.Name] == port && p.Range.Len() > 1
	})
}

func allPorts(p fleet.Placement) []int {
	all := slices.Collect(maps.Values(p.Ports))
	if p.Port > 0 {
		all = append(all, p.Port)
	}
	slices.Sort(all)
	return all
}
