// Package stop ends a run the way its plan says: the stop line, the grace, the
// signal, ten seconds more, then a kill of everything. It is finished when the
// run has ended, not after a fixed time.
package stop

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Policy is how a run is asked to end.
type Policy struct {
	// Line is written to the input. Empty sends the signal at once.
	Line string
	// Grace is the time the line has to work. 0 sends the signal at once: a line that has
	// no time is not written.
	Grace time.Duration
	// Signal follows; KILL skips what comes after it.
	Signal syscall.Signal
	// KillAfter is the time between the signal and the kill.
	KillAfter time.Duration
}

// Gracefully ends a run. Closing force cuts everything short and kills at once, also
// while the line is being typed or the signal is on its way. It returns when the run has
// ended, or with ctx's error: an agent that leaves takes no further step, the run goes on
// and the next agent begins anew.
func Gracefully(ctx context.Context, p runtime.Process, policy Policy, force <-chan struct{}) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	s := sequence{p: p, force: force, asking: &asking}
	// A line that cannot be delivered is no reason to fail: the signal follows.
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

// sequence is a stop under way.
type sequence struct {
	p      runtime.Process
	force  <-chan struct{}
	asking *sync.WaitGroup
}

// signal sends a signal. One that cannot be sent is waited for like one that is ignored.
func (s sequence) signal(sig syscall.Signal) func() error {
	return func() error { _ = s.p.Signal(sig); return nil }
}

// step asks the run to end, which may take its time, and gives it time to do so. True
// when it has ended; false when it was not asked, its time is over, or force or ctx came first.
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
