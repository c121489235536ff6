// Package lifecycle runs a service: named components started in order and stopped in reverse,
// readiness gates, and signals.
//
//	starting ──all Starts returned──▶ running ──context done, or first failure──▶ stopping ──▶ returned
//	    └───────────────── a Start failed, context done ─────────────────────────────▲
//
// Invariants:
//   - A component starts only after every earlier one has started, and stops only after every later one has stopped or timed out.
//   - The first failure stops everything. A Run that returns early, even with nil, is a failure; one-time work belongs in Start. ErrEnd is not a failure.
//   - Cancelling the caller's context does not cancel the components' contexts. Each works until it is its turn to stop.
//   - A panic in a component is handled as an error, and its stack is logged.
//   - Run returns only when every component has ended, except those that timed out, which the returned error names.
//
// The package restarts nothing: a failed service exits, and its supervisor starts it again.
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

// StopTimeout is the default of Component.StopTimeout.
const StopTimeout = 10 * time.Second

// ErrEnd is returned by a component's Run to end the whole service without a failure. Components
// that have not started yet are not started.
var ErrEnd = errors.New("asked to end the service")

// Component is one part of a service. Any of its functions may be nil.
type Component struct {
	// Name identifies the component in logs and errors.
	Name string
	// Start prepares the component for those after it. Its context ends when Start returns; longer
	// work belongs to Run.
	Start func(ctx context.Context) error
	// Run works until its context is done or Stop makes it return. It starts after Start has
	// returned. An error of Kind Canceled after a stop request is not a failure.
	Run func(ctx context.Context) error
	// Stop requests a graceful end: finish current work and accept no more. Run's context is
	// cancelled when Stop returns, or after four fifths of StopTimeout, when Stop's own context
	// ends.
	Stop func(ctx context.Context) error
	// StopTimeout bounds Stop and the end of Run together. 0 means the package's StopTimeout.
	StopTimeout time.Duration
}

// Run starts the components in order, waits until ctx is done or one of them fails, and stops them
// in reverse. It returns nil after a clean stop because of ctx or ErrEnd, otherwise all failures
// joined, the first one first.
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

// group holds the started components in order. It is owned by the goroutine of Run.
type group struct {
	log     *slog.Logger
	running []*running
	// failed receives at most one error per component, so senders never block.
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

// startOne calls Start and then starts Run. It stops waiting if an earlier component fails
// meanwhile.
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
				return late // ErrEnd is not a failure, but late is
			}
			return errors.Join(err, late)
		}
	}
	g.run(ctx, c)
	return nil
}

// afterFailure handles a component whose Start returned after an earlier component failed. If it
// started, it is stopped with the others.
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

// run starts a component's Run with a context that only stop cancels.
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
			err = errs.New(errs.Internal, "%s: ended unexpectedly", c.Name)
		}
		g.failed <- err
	}()
}

// stop ends everything in reverse and returns all failures, including those not yet read from
// failed.
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
			if !errors.Is(err, ErrEnd) { // more than one component returned it
				failures = append(failures, err)
			}
		default:
			return failures
		}
	}
}

// stopOne gives Stop four fifths of the timeout and Run the rest, so a Run that ends too slowly is
// cancelled in time.
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

// guard adds the component's name to errors and turns panics into errors.
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
