package supervise

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
	"github.com/orreryhq/orrery/nodeagent/internal/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/guard"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/workspace"
)

// maxGuards is how many guards of one process are replaced: who kills that many
// wants the instance to run without, which it must not.
const maxGuards = 5

// guardPatience is how long a living process may be without a guard while the host
// cannot give it one.
const guardPatience = 3 * time.Second

// construct builds the directory. An exclusive instance's may be another node's as
// well: it is touched only while the session lives.
func (i *Instance) construct(ctx context.Context, r workspace.Request) ([]string, error) {
	defer trace.StartRegion(ctx, "build directory").End()
	if !r.Plan.Exclusive() {
		return i.buildClaimed(ctx, r)
	}
	for {
		if err := i.kit.Tenure.Await(ctx); err != nil {
			return nil, err
		}
		within, cancel := i.kit.Tenure.Within(ctx)
		notes, err := i.buildClaimed(within, r)
		cut := within.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !cut {
			return notes, err
		}
	}
}

// buildClaimed builds the directory; a static one that is there belongs to nobody else.
func (i *Instance) buildClaimed(ctx context.Context, r workspace.Request) ([]string, error) {
	if r.Plan.Static {
		lock, err := i.claim(r.Placement, r.Plan)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it will be made whole
			r.Absent = true
		case err != nil:
			return nil, err
		default:
			defer lock.Release()
		}
	}
	return i.build(ctx, r)
}

// errNoSession holds a start of an exclusive instance back.
var errNoSession = errs.New(errs.Unavailable, "the node has no session")

// entitled returns when an exclusive instance may start: the node has a session, and
// under it the start is claimed; ctx is within it. It may have waited for that while
// another node was given the instance. NotFound when it was, Unavailable when the
// session came too near its end to know.
func (i *Instance) entitled(ctx context.Context, p fleet.Placement) error {
	for {
		if !i.kit.Tenure.Holds(ctx) {
			return errNoSession
		}
		err := i.kit.Claim(ctx, p)
		if err == nil || errs.Is(err, errs.NotFound) || !pause.For(ctx, retryPause) {
			return err
		}
	}
}

// claim takes a static instance's directory. Errors are Failures.
func (i *Instance) claim(p fleet.Placement, plan fleet.Plan) (*claim.Lock, error) {
	lock, err := claim.Take(i.kit.Workspace.Dir(p, plan), claim.Of(p, i.kit.Journal.UUID()))
	if err != nil {
		return nil, &workspace.Failure{Reason: diskOr(fleet.ReasonDirectoryTaken, err), Message: text(fleet.ReasonDirectoryTaken, err), Err: err}
	}
	return lock, nil
}

// startSecured starts the process: a static one holds its directory's lock, an
// exclusive one has a guard, which is there before it. Errors are Failures, the
// runtime's, or errNoSession.
func (i *Instance) startSecured(ctx, within context.Context, s machine.State, rt runtime.Runtime, spec runtime.Spec) (runtime.Process, *guard.Guard, error) {
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
	g, err := i.kit.Guards.Start(within, spec.InstanceID, spec.RunDir, s.Run)
	switch {
	case err != nil && !i.kit.Tenure.Holds(within):
		return nil, nil, errNoSession
	case err != nil:
		return nil, nil, i.noGuard(err)
	}
	// All of the above may have taken any time. What comes now takes none that could be looked at.
	if !i.kit.Tenure.Holds(within) {
		g.End()
		return nil, nil, errNoSession
	}
	p, err := rt.Start(ctx, spec)
	if err != nil {
		g.End()
		return nil, nil, err
	}
	if err := g.Watch(p.Identity()); err != nil { // it has killed what it found, or never will
		g.End()
		i.finishOff(context.WithoutCancel(ctx), p)
		return nil, nil, i.noGuard(err)
	}
	return p, g, nil
}

func (i *Instance) noGuard(err error) error {
	i.log.Error("no guard", "error", err)
	return &workspace.Failure{Reason: fleet.ReasonGuardFailed, Message: guardless(err), Err: err}
}

func guardless(err error) string {
	if m := errs.MessageOf(err); m != errs.MessageOf(nil) {
		return m
	}
	return fmt.Sprintf("%s: %v", fleet.ReasonGuardFailed.Text(), err)
}

// secured gives an adopted process of an exclusive instance its guard. One that
// cannot have any is adopted to be killed.
func (i *Instance) secured(ctx context.Context, s machine.State, found message) message {
	if !s.Plan.Exclusive() {
		return found
	}
	g, err := i.resumeGuard(ctx, s.Run, found.process.Identity())
	if err != nil {
		i.log.Error("no guard", "error", err)
		i.post(found)
		return message{event: machine.Unguarded{Run: s.Run, Message: guardless(err)}}
	}
	found.guard = g
	return found
}

// resumeGuard gives a living process its guard. A host on which that fails may be
// short of something for a moment only: until guardPatience is over the agent alone
// watches the deadline.
func (i *Instance) resumeGuard(ctx context.Context, run int, id runtime.Identity) (*guard.Guard, error) {
	end := time.Now().Add(guardPatience)
	for {
		g, err := i.kit.Guards.Resume(ctx, string(i.id), i.kit.RunDir(i.id), run, id)
		if !errs.Is(err, errs.Unavailable) || len(i.kit.Guards.Command) == 0 || time.Now().After(end) || !pause.For(ctx, retryPause) {
			return g, err
		}
	}
}

// unguarded is closed when the guard of the process has gone.
func (i *Instance) unguarded() <-chan struct{} {
	if i.guard == nil {
		return nil
	}
	return i.guard.Exited()
}

// reguard replaces a guard that has gone although its instance lives.
func (i *Instance) reguard(ctx context.Context) {
	i.guard = nil
	i.guards++
	if i.process == nil {
		return
	}
	run, id, tries := i.entry.Machine.Run, i.process.Identity(), i.guards
	i.helpers.Go(func() {
		if tries > maxGuards {
			i.post(message{event: machine.Unguarded{Run: run, Message: "its guard was ended again and again"}})
			return
		}
		g, err := i.resumeGuard(ctx, run, id)
		switch {
		case ctx.Err() != nil: // the next agent sees to it
		case err != nil:
			i.log.Error("the guard has gone and cannot be replaced", "error", err)
			i.post(message{event: machine.Unguarded{Run: run, Message: guardless(err)}})
		case g != nil:
			i.log.Warn("the guard had gone and was replaced", "pid", g.PID())
			i.post(message{guard: g, run: run})
		}
	})
}

// relieve takes over a new guard of a run, unless that has gone meanwhile: the next
// one has its own.
func (i *Instance) relieve(g *guard.Guard, run int) {
	if i.process == nil || run != i.entry.ProcessRun {
		g.End()
		return
	}
	i.guard = g
}

// dismiss ends the guard of a process that has gone: before the next one starts,
// nobody may be about to kill it.
func (i *Instance) dismiss() {
	if i.guard != nil {
		i.guard.End()
		i.guard = nil
	}
}

// attribute marks the end of a process that its guard killed for the deadline.
func (i *Instance) attribute(e machine.Event) machine.Event {
	if !i.entry.Machine.Plan.Exclusive() {
		return e
	}
	switch end := e.(type) {
	case machine.Exited:
		end.Expired = guard.Killed(i.kit.RunDir(i.id), end.Run)
		return end
	case machine.Lost:
		end.Expired = guard.Killed(i.kit.RunDir(i.id), end.Run)
		return end
	}
	return e
}
