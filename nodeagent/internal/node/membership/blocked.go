package membership

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/ports"
)

// probeInterval is the interval between two probes of blocked ports. The kernel does not notify
// about ports that become free.
const probeInterval = time.Second

// Block makes the scheduler avoid a port that another program uses, until it is free or until
// b.Until. It is best effort, since the start fails anyway. Without a session it writes
// nothing, because another agent may own the node by now.
func (m *Member) Block(ctx context.Context, b fleet.BlockedPort) {
	fence, ok := m.Fence()
	if !ok {
		m.cfg.Log.Warn("cannot report a port in use: the node has no session", "port", b.Port)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := m.update(ctx, fence, func(n *fleet.Node) {
		n.BlockedPorts = append(slices.DeleteFunc(n.BlockedPorts, func(have fleet.BlockedPort) bool { return have.Port == b.Port }), b)
	})
	if err != nil {
		m.cfg.Log.Warn("cannot report a port in use", "port", b.Port, "error", err)
		return
	}
	select {
	case m.blocked <- struct{}{}:
	default:
	}
}

// watchPorts removes blocked ports from the node's record as soon as they are free, including
// those that an earlier agent blocked, until ctx ends.
func (m *Member) watchPorts(ctx context.Context, fence store.Fence) {
	for {
		for m.anyBlocked() {
			if !pause.For(ctx, probeInterval) {
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

// anyBlocked reports whether the scheduler avoids a port of the node now.
func (m *Member) anyBlocked() bool {
	now := m.cfg.Now()
	return slices.ContainsFunc(m.Node().BlockedPorts, func(b fleet.BlockedPort) bool { return b.Until.After(now) })
}

// freePorts are the blocked ports that are free. It does not probe ports of the node's own
// instances: a server that binds its port at that moment would find it in use.
func (m *Member) freePorts() (free []fleet.BlockedPort) {
	own, now := m.cfg.InUse(), m.cfg.Now()
	for _, b := range m.Node().BlockedPorts {
		if own[b.Port] || !b.Until.After(now) {
			continue
		}
		if busy, err := ports.Probe(b.Port); busy == nil && err == nil {
			free = append(free, b)
		}
	}
	return free
}

// unblock removes the blocks of free ports. A block that was renewed since stays, because the
// port was found in use after the probe.
func (m *Member) unblock(ctx context.Context, fence store.Fence, free []fleet.BlockedPort) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := m.update(ctx, fence, func(n *fleet.Node) {
		n.BlockedPorts = slices.DeleteFunc(n.BlockedPorts, func(b fleet.BlockedPort) bool {
			return slices.ContainsFunc(free, func(f fleet.BlockedPort) bool { return f.Port == b.Port && f.Until.Equal(b.Until) })
		})
	})
	if err != nil {
		m.cfg.Log.Warn("cannot report ports that are free again", "ports", numbers(free), "error", err)
		return
	}
	m.cfg.Log.Info("ports are free again", "ports", numbers(free))
}

func numbers(all []fleet.BlockedPort) []int {
	out := make([]int, len(all))
	for i, b := range all {
		out[i] = b.Port
	}
	return out
}
