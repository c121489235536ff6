// Package stop ends a run in the steps of its plan: it writes the stop line, waits for the
// grace, sends the signal, waits ten seconds and kills everything. It returns as soon as the
// run has ended.
package stop

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Policy describes how a run is ended.
type Policy struct {
	// Line is written to the console. If it is empty, the signal is sent at once.
	Line string
	// Grace is how long the run has to end after Line. With 0 Line is not written and the signal
	// is sent at once.
	Grace time.Duration
	// Signal follows. KILL skips the steps after it.
	Signal syscall.Signal
	// KillAfter is the time between the signal and the kill.
	KillAfter time.Duration
}

// Gracefully ends a run. Closing force kills it at once, even while the line is being written
// or the signal is being sent. Gracefully returns when the run has ended, or with ctx's
// error: then the run continues, and the next agent starts the sequence again.
func Gracefully(ctx context.Context, p runtime.Process, policy Policy, force <-chan struct{}) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	s := sequence{p: p, force: force, asking: &asking}
	// If the line cannot be written, the signal follows.
	if policy.Line != "" && policy.Grace > 0 && s.step(ctx, func() error { return p.WriteLine(policy.Line) }, policy.Grace) {
		return nil
	}
	if ctx.Err() != nil {
		return errs.Wrap("stop.Gracefully", ctx.Err())
	}
	if policy.Signal != syscall.SIGKILL && s.step(ctx, s.signal(policy.Signal), policy.KillAfter) {
		return nil
	}
	if ctx.Err() != nil {
		return errs.Wrap("stop.Gracefully", ctx.Err())
	}
	return p.Kill(ctx)
}

// sequence is a running stop sequence.
type sequence struct {
	p      runtime.Process
	force  <-chan struct{}
	asking *sync.WaitGroup
}

// signal sends a signal. A failure is treated like a signal that is ignored.
func (s sequence) signal(sig syscall.Signal) func() error {
	return func() error { _ = s.p.Signal(sig); return nil }
}

// step asks the run to end and waits for it. It returns true if the run has ended, and false if
// asking failed, the time is over, force is closed or ctx has ended.
func (s sequence) step(ctx context.Context, ask func() error, within time.Duration) (ended bool) {
	if closed(s.force) || ctx.Err() != nil {
		return false
	}
	asked := make(chan error, 1)
	s.asking.Go(func() { asked <- ask() })
	var over <-chan time.Time
	for {
		select {
		case <-s.p.Exited():
			return true
		case err := <-asked:
			if err != nil {
				return false
			}
			timer := time.NewTimer(within)
			defer timer.Stop()
			over = timer.C
		case <-over:
			return false
		case <-s.force:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
