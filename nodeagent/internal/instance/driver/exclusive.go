package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/trace"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/node/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// maxGuards bounds how often the guard of one process is replaced. The instance ends after
// that, because it must not run without a guard.
const maxGuards = 5

// guardPatience is how long a process may run without a guard while the host fails to
// start one.
const guardPatience = 3 * time.Second

// buildExclusive builds the directory. The directory of an exclusive instance may
// also belong to another node, so it is built only during a session.
func (i *Instance) buildExclusive(ctx context.Context, r workspace.Request) ([]string, error) {
	defer trace.StartRegion(ctx, "build directory").End()
	if !r.Plan.Exclusive() {
		return i.buildLocked(ctx, r)
	}
	for {
		if err := i.deps.Deadline.Await(ctx); err != nil {
			return nil, err
		}
		within, cancel := i.deps.Deadline.Within(ctx)
		notes, err := i.buildLocked(within, r)
		cut := within.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !cut {
			return notes, err
		}
	}
}

// buildLocked builds the directory. It locks a static directory that exists.
func (i *Instance) buildLocked(ctx context.Context, r workspace.Request) ([]string, error) {
	if r.Plan.Static {
		lock, err := i.claim(r.Placement, r.Plan)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it will be created
			r.Absent = true
		case err != nil:
			return nil, err
		default:
			defer lock.Release()
		}
	}
	return i.buildWithRetry(ctx, r)
}

// errNoSession means that an exclusive instance cannot start yet.
var errNoSession = errs.New(errs.Unavailable, "the node has no session")

// claimStart returns nil when an exclusive instance may start: the node has a session, and the
// start is claimed under it. ctx ends with the session. NotFound if another node was given
// the instance meanwhile, Unavailable if the session is about to expire.
func (i *Instance) claimStart(ctx context.Context, p fleet.Placement) error {
	for {
		if !i.deps.Deadline.Holds(ctx) {
			return errNoSession
		}
		err := i.deps.Claim(ctx, p)
		if err == nil || errs.Is(err, errs.NotFound) || !pause.For(ctx, retryPause) {
			return err
		}
	}
}

// claim locks a static instance's directory. Errors are Failures.
func (i *Instance) claim(p fleet.Placement, plan fleet.Plan) (*claim.Lock, error) {
	lock, err := claim.Take(i.deps.Workspace.Dir(p, plan), claim.Of(p, i.deps.Journal.UUID()))
	if err != nil {
		return nil, &workspace.Failure{Reason: diskOr(fleet.ReasonDirectoryTaken, err), Message: text(fleet.ReasonDirectoryTaken, err), Err: err}
	}
	return lock, nil
}

// startGuarded starts the process. A static instance holds the lock of its directory. An
// exclusive instance gets a guard before its process. Errors are Failures, the runtime's, or
// errNoSession.
func (i *Instance) startGuarded(ctx, within context.Context, s machine.State, rt runtime.Runtime, spec runtime.Spec) (runtime.Process, *guard.Guard, error) {
	defer trace.StartRegion(ctx, "start process").End()
	if s.Plan.Static {
		lock, err := i.claim(s.Placement, s.Plan)
		if err != nil {
			return nil, nil, err
		}
		defer lock.Pass()
		spec.Lock = lock.File()
	}
	if !s.Plan.Exclusive() {
		p, err := rt.Start(ctx, spec)
		return p, nil, err
	}
	g, err := i.deps.Guards.Start(within, spec.InstanceID, spec.RunDir, s.Run)
	switch {
	case err != nil && !i.deps.Deadline.Holds(within):
		return nil, nil, errNoSession
	case err != nil:
		return nil, nil, i.guardFailure(err)
	}
	// The steps above may have taken long, so the deadline is checked again right before the start.
	if !i.deps.Deadline.Holds(within) {
		g.End()
		return nil, nil, errNoSession
	}
	p, err := rt.Start(ctx, spec)
	if err != nil {
		g.End()
		return nil, nil, err
	}
	if err := g.Watch(p.Identity()); err != nil { // the guard may not kill the process
		g.End()
		i.killUntilGone(context.WithoutCancel(ctx), p)
		return nil, nil, i.guardFailure(err)
	}
	return p, g, nil
}

func (i *Instance) guardFailure(err error) error {
	i.log.Error("cannot start the guard", "error", err)
	return &workspace.Failure{Reason: fleet.ReasonGuardFailed, Message: guardMessage(err), Err: err}
}

func guardMessage(err error) string {
	if m := errs.MessageOf(err); m != errs.MessageOf(nil) {
		return m
	}
	return fmt.Sprintf("%s: %v", fleet.ReasonGuardFailed.Text(), err)
}

// guardAdopted starts the guard of an adopted process of an exclusive instance. If that fails,
// the process is adopted to be killed.
func (i *Instance) guardAdopted(ctx context.Context, s machine.State, found message) message {
	if !s.Plan.Exclusive() {
		return found
	}
	g, err := i.resumeGuard(ctx, s.Run, found.process.Identity())
	if err != nil {
		i.log.Error("cannot start the guard", "error", err)
		i.post(found)
		return message{event: machine.GuardLost{Run: s.Run, Message: guardMessage(err)}}
	}
	found.guard = g
	return found
}

// resumeGuard starts a guard for a running process. It retries for guardPatience, since a
// host may lack resources for a moment. Until then only the agent watches the deadline.
func (i *Instance) resumeGuard(ctx context.Context, run int, id runtime.Identity) (*guard.Guard, error) {
	end := time.Now().Add(guardPatience)
	for {
		g, err := i.deps.Guards.Resume(ctx, string(i.id), i.deps.RunDir(i.id), run, id)
		if !errs.Is(err, errs.Unavailable) || len(i.deps.Guards.Command) == 0 || time.Now().After(end) || !pause.For(ctx, retryPause) {
			return g, err
		}
	}
}

// guardExited is closed when the guard of the process exits.
func (i *Instance) guardExited() <-chan struct{} {
	if i.guard == nil {
		return nil
	}
	return i.guard.Exited()
}

// replaceGuard replaces a guard that exited although its instance runs.
func (i *Instance) replaceGuard(ctx context.Context) {
	i.guard = nil
	i.guards++
	if i.process == nil {
		return
	}
	run, id, tries := i.entry.Machine.Run, i.process.Identity(), i.guards
	i.helpers.Go(func() {
		if tries > maxGuards {
			i.post(message{event: machine.GuardLost{Run: run, Message: "its guard exited again and again"}})
			return
		}
		g, err := i.resumeGuard(ctx, run, id)
		switch {
		case ctx.Err() != nil: // the next agent starts one
		case err != nil:
			i.log.Error("the guard exited and cannot be replaced", "error", err)
			i.post(message{event: machine.GuardLost{Run: run, Message: guardMessage(err)}})
		case g != nil:
			i.log.Warn("the guard exited and was replaced", "pid", g.PID())
			i.post(message{guard: g, run: run})
		}
	})
}

// setGuard sets the new guard of a run, or ends it if the run is over.
func (i *Instance) setGuard(g *guard.Guard, run int) {
	if i.process == nil || run != i.entry.ProcessRun {
		g.End()
		return
	}
	i.guard = g
}

// endGuard ends the guard of a process that exited, so that it cannot kill the next one.
func (i *Instance) endGuard() {
	if i.guard != nil {
		i.guard.End()
		i.guard = nil
	}
}

// markExpired marks the end of a process that its guard killed because of the deadline.
func (i *Instance) markExpired(e machine.Event) machine.Event {
	if !i.entry.Machine.Plan.Exclusive() {
		return e
	}
	switch end := e.(type) {
	case machine.Exited:
		end.Expired = guard.Killed(i.deps.RunDir(i.id), end.Run)
		return end
	case machine.Lost:
		end.Expired = guard.Killed(i.deps.RunDir(i.id), end.Run)
		return end
	}
	return e
}
