package membership

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/ports"
)

// probeEvery is the time between two probes of blocked ports: the kernel announces no
// port that becomes free.
const probeEvery = time.Second

// Block has the scheduler avoid a port that a stranger holds, until it is free or b.Until
// has come. It is best effort: the start fails either way. Without a session it writes
// nothing, since another agent may have the node by now.
func (m *Member) Block(ctx context.Context, b fleet.BlockedPort) {
	fence, ok := m.Fence()
	if !ok {
		m.cfg.Log.Warn("taken port not reported: the node has no session", "port", b.Port)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := m.update(ctx, fence, func(n *fleet.Node) {
		n.BlockedPorts = append(without(n.BlockedPorts, []int{b.Port}), b)
	})
	if err != nil {
		m.cfg.Log.Warn("taken port not reported", "port", b.Port, "error", err)
		return
	}
	select {
	case m.blocked <- struct{}{}:
	default:
	}
}

// watchPorts removes blocked ports from the node's record as soon as they are free, those
// that an earlier agent blocked included, until ctx ends.
func (m *Member) watchPorts(ctx context.Context, fence store.Fence) {
	for {
		for m.anyBlocked() {
			if !pause.For(ctx, probeEvery) {
				return
			}
			if free := m.freePorts(); len(free) > 0 {
				m.unblock(ctx, fence, free)
			}
		}
		select {
		case <-m.blocked:
		case <-ctx.Done():
			return
		}
	}
}

// anyBlocked reports whether the scheduler may avoid a port of the node now.
func (m *Member) anyBlocked() bool {
	now := m.cfg.Now()
	return slices.ContainsFunc(m.Node().BlockedPorts, func(b fleet.BlockedPort) bool { return b.Until.After(now) })
}

func (m *Member) freePorts() (free []int) {
	for _, b := range m.Node().BlockedPorts {
		if busy, err := ports.Probe(b.Port); busy == nil && err == nil {
			free = append(free, b.Port)
		}
	}
	return free
}

func (m *Member) unblock(ctx context.Context, fence store.Fence, free []int) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := m.update(ctx, fence, func(n *fleet.Node) { n.BlockedPorts = without(n.BlockedPorts, free) })
	if err != nil {
		m.cfg.Log.Warn("ports that are free again are not reported yet", "ports", free, "error", err)
		return
	}
	m.cfg.Log.Info("ports that were taken are free again", "ports", free)
}

func without(all []fleet.BlockedPort, ports []int) []fleet.BlockedPort {
	return slices.DeleteFunc(all, func(b fleet.BlockedPort) bool { return slices.Contains(ports, b.Port) })
}
