package driver

import (
	"context"

	"github.com/orreryhq/orrery/libs/fleet/sleep"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/wakeup"
)

// listener listens on the port of a sleeping instance; see package wakeup.
type listener struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// close closes the sockets. It returns when they are closed. l may be nil.
func (l *listener) close() {
	if l != nil {
		l.cancel()
		<-l.done
	}
}

// listenAsleep makes the instance's port answer while the instance sleeps, and until the server that
// wakes is about to start. launch closes the sockets itself.
func (i *Instance) listenAsleep(ctx context.Context) {
	s := i.entry.Machine
	switch {
	case s.Phase == machine.Asleep:
		if i.listener == nil && s.Placement.Port > 0 && s.Plan.Sleep.Wakes() != sleep.WakeOff {
			i.listener = i.listen(ctx, s)
		}
	case i.listener != nil && !(s.Slept && (s.Phase == machine.Preparing || s.Phase == machine.Launching)):
		i.listener.close()
		i.listener = nil
	}
}

func (i *Instance) listen(ctx context.Context, s machine.State) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{cancel: cancel, done: make(chan struct{})}
	cfg := wakeup.Config{
		Port: s.Placement.Port, Rules: s.Plan.Sleep, MaxPlayers: s.Plan.MaxPlayers, Since: s.Status.FinishedAt, Now: i.deps.Now, Log: i.log,
		Call: func(c sleep.Call) { i.Send(machine.Called{Call: c}) },
	}
	i.helpers.Go(func() {
		defer close(l.done)
		wakeup.Serve(ctx, cfg)
	})
	return l
}
