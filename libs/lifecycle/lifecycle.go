// Package lifecycle is the skeleton every service runs in: named components
// started in order and stopped in reverse, readiness gates, and signals.
//
//	starting ──all Starts returned──▶ running ──context done, or first failure──▶ stopping ──▶ returned
//	    └───────────────── a Start failed, context done ─────────────────────────────▲
//
// Invariants:
//   - A component is started only after every earlier one has started, and
//     stopped only after every later one has stopped or used up its bound.
//   - The first failure stops all. A Run that returns before it was asked to,
//     even with nil, is a failure: what must be done once belongs in Start. ErrEnd is none.
//   - Cancelling the caller's context does not cancel the components' own: each
//     keeps working until its turn to stop comes.
//   - A panic in a component is an error like any other; its stack is logged.
//   - Run returns only when every component has ended, except those that let
//     their bound pass, which the returned error names.
//
// The package restarts nothing: a service that failed exits, and whoever runs it
// starts it again with an empty memory.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// StopTimeout is how long a component may take to stop when it names no bound of its own.
const StopTimeout = 10 * time.Second

// ErrEnd is what a component's Run returns when somebody asked it to end the whole service:
// all stop, and nothing has failed. Those whose turn to start has not come by then are not started.
var ErrEnd = errors.New("asked to end the service")

// Component is one part of a service. Any of its functions may be nil.
type Component struct {
	// Name stands in logs and errors.
	Name string
	// Start makes the component ready for those after it and returns. Its context
	// ends when Start returns; what lives longer belongs to Run.
	Start func(ctx context.Context) error
	// Run works until its context is done, or until Stop makes it return. It
	// begins when Start has returned. An error of Kind Canceled after it was asked
	// to stop is not a failure.
	Run func(ctx context.Context) error
	// Stop asks for a graceful end: finish what was begun, take nothing new. Run's
	// context is cancelled when Stop has returned or its own context has ended,
	// which is after four fifths of the bound.
	Stop func(ctx context.Context) error
	// StopTimeout bounds Stop and the end of Run together. 0 means the package's StopTimeout.
	StopTimeout time.Duration
}

// Run starts the components in order, waits until ctx is done or one of them
// fails, and stops them in reverse. It returns nil when it was ctx that ended, or ErrEnd,
// and everything stopped cleanly; otherwise all failures joined, the first one first.
func Run(ctx context.Context, log *slog.Logger, components ...Component) error {
	g := &group{log: log, failed: make(chan error, len(components))}
	err := g.start(ctx, components)
	if err == nil {
		log.Info("running", "components", len(components))
		select {
		case <-ctx.Done():
			log.Info("stopping", "cause", context.Cause(ctx))
		case err = <-g.failed:
			if !errors.Is(err, ErrEnd) {
				log.Error("stopping: a component failed", "error", err)
			}
		}
	}
	if errors.Is(err, ErrEnd) {
		log.Info("stopping", "cause", err)
		err = nil
	}
	return errors.Join(append([]error{err}, g.stop()...)...)
}

// group holds what has been started, in order. It is owned by the goroutine of Run.
type group struct {
	log     *slog.Logger
	running []*running
	// failed takes at most one error per component, so no sender ever blocks.
	failed chan error
}

// running is a started component.
type running struct {
	Component
	cancel context.CancelFunc
	// stopping is closed before the component is asked to stop.
	stopping chan struct{}
	// done is closed when Run has returned; err is valid from then on.
	done chan struct{}
	err  error
}

func (g *group) start(ctx context.Context, components []Component) error {
	for _, c := range components {
		if ctx.Err() != nil {
			return nil // asked to stop while starting: not a failure
		}
		began := time.Now()
		err := g.startOne(ctx, c)
		switch {
		case err == nil:
			g.log.Debug("started", "component", c.Name, "took", time.Since(began))
		case ctx.Err() != nil && errs.Is(err, errs.Canceled):
			g.log.Info("start abandoned", "component", c.Name)
			return nil
		default:
			return err
		}
	}
	return nil
}

// startOne runs Start, giving up waiting when an earlier component fails
// meanwhile, and then sets Run going.
func (g *group) startOne(ctx context.Context, c Component) error {
	if c.Start != nil {
		startCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		started := make(chan error, 1)
		go func() { started <- guard(g.log, c.Name, "start", func() error { return c.Start(startCtx) }) }()
		select {
		case err := <-started:
			if err != nil {
				return err
			}
		case err := <-g.failed:
			cancel()
			late := g.afterFailure(ctx, c, <-started)
			if late != nil && errors.Is(err, ErrEnd) {
				return late // to be asked to end is no failure, and this is
			}
			return errors.Join(err, late)
		}
	}
	g.run(ctx, c)
	return nil
}

// afterFailure handles a component whose Start returned after an earlier one had
// failed: started after all, it joins the others to be stopped with them.
func (g *group) afterFailure(ctx context.Context, c Component, err error) error {
	if err == nil {
		g.run(ctx, c)
		return nil
	}
	if errs.Is(err, errs.Canceled) {
		return nil
	}
	return err
}

// run sets a component's Run going on a context that only stop cancels.
func (g *group) run(ctx context.Context, c Component) {
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{Component: c, cancel: cancel, stopping: make(chan struct{}), done: make(chan struct{})}
	g.running = append(g.running, r)
	if c.Run == nil {
		close(r.done)
		return
	}
	go func() {
		defer close(r.done)
		err := guard(g.log, c.Name, "run", func() error { return c.Run(runCtx) })
		select {
		case <-r.stopping:
			if !errs.Is(err, errs.Canceled) && !errors.Is(err, ErrEnd) {
				r.err = err
			}
			return
		default:
		}
		if err == nil {
			err = errs.New(errs.Internal, "%s: ended without being asked to", c.Name)
		}
		g.failed <- err
	}()
}

// stop ends everything in reverse and returns what went wrong on the way,
// failures that nobody has read yet included.
func (g *group) stop() []error {
	var failures []error
	for _, r := range slices.Backward(g.running) {
		if err := g.stopOne(r); err != nil {
			g.log.Error("stopped badly", "component", r.Name, "error", err)
			failures = append(failures, err)
		}
	}
	for {
		select {
		case err := <-g.failed:
			if !errors.Is(err, ErrEnd) { // several were asked to
				failures = append(failures, err)
			}
		default:
			return failures
		}
	}
}

// stopOne gives Stop four fifths of the bound and Run the rest, so that a Run
// whose graceful end takes too long still ends by its context, in time.
func (g *group) stopOne(r *running) error {
	bound := r.StopTimeout
	if bound <= 0 {
		bound = StopTimeout
	}
	whole, cancelWhole := context.WithTimeout(context.Background(), bound)
	defer cancelWhole()
	graceful, cancelGraceful := context.WithTimeout(whole, bound*4/5)
	defer cancelGraceful()
	defer context.AfterFunc(graceful, r.cancel)()

	close(r.stopping)
	stopped := make(chan error, 1)
	go func() {
		var err error
		if r.Stop != nil {
			err = guard(g.log, r.Name, "stop", func() error { return r.Stop(graceful) })
		}
		r.cancel()
		<-r.done
		stopped <- errors.Join(err, r.err)
	}()
	select {
	case err := <-stopped:
		return err
	case <-whole.Done():
		return errs.New(errs.Unavailable, "%s: did not stop within %v", r.Name, bound)
	}
}

// guard names the component in its error and turns a panic into one.
func guard(log *slog.Logger, name, phase string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic", "component", name, "phase", phase, "panic", p, "stack", string(debug.Stack()))
			err = errs.New(errs.Internal, "%s: panic in %s: %v", name, phase, p)
		}
	}()
	if err := f(); err != nil {
		return errs.Wrap(fmt.Sprintf("%s: %s", name, phase), err)
	}
	return nil
}
