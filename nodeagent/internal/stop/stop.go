// Package stop ends a run the way its plan says: the stop line, the grace, the
// signal, ten seconds more, then a kill of everything. It is finished when the
// run has ended, not after a fixed time.
package stop

import (
	"context"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Policy is how a run is asked to end.
type Policy struct {
	// Line is written to the input. Empty sends the signal at once.
	Line string
	// Grace is the time the line has to work.
	Grace time.Duration
	// Signal follows; KILL skips what comes after it.
	Signal syscall.Signal
	// KillAfter is the time between the signal and the kill.
	KillAfter time.Duration
}

// Gracefully ends a run. Closing force cuts every wait short and kills at once.
// It returns when the run has ended, or with ctx's error: an agent that leaves
// takes no further step, the run goes on and the next agent begins anew.
func Gracefully(ctx context.Context, p runtime.Process, policy Policy, force <-chan struct{}) error {
	// A line that cannot be delivered is no reason to fail: the signal follows.
	if policy.Line != "" && p.WriteLine(policy.Line) == nil && ended(ctx, p, policy.Grace, force) {
		return nil
	}
	if ctx.Err() != nil {
		return errs.Wrap("stop.Gracefully", ctx.Err())
	}
	if policy.Signal != syscall.SIGKILL && !closed(force) {
		_ = p.Signal(policy.Signal)
		if ended(ctx, p, policy.KillAfter, force) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return errs.Wrap("stop.Gracefully", ctx.Err())
	}
	return p.Kill(ctx)
}

// ended waits for the run's end, at most for a time. False also when force or ctx came first.
func ended(ctx context.Context, p runtime.Process, wait time.Duration, force <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.Exited():
		return true
	case <-timer.C:
	case <-force:
	case <-ctx.Done():
	}
	return false
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
