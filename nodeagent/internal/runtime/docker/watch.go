package docker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

const (
	// checkInterval is how often the engine is checked. It counts as missing after maxFailures
	// failures in a row.
	checkInterval = 5 * time.Second
	maxFailures   = 2
	// sweepInterval is how often containers are swept without a request.
	sweepInterval = 10 * time.Minute
)

var errNotChecked = errs.New(errs.Unavailable, "the container engine has not been checked yet")

// Watch configures Run. All fields are required.
type Watch struct {
	// Root is the directory with the instances' directories.
	Root string
	// Known reports whether an instance is known, and manages its container itself.
	Known func(instance string) bool
	// OnCheck is called after every check: missing is why the engine cannot be used, or nil.
	OnCheck func(ctx context.Context, missing error)
}

// Check checks whether there is a usable engine. It returns Unavailable, with what to do, if not.
func (r *Runtime) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	rootless, err := checkEngine(ctx, r.engine, r.cfg.Dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing, r.rootless = err, rootless
	return err
}

// Missing returns the result of the last check; see runtime.Checker.
func (r *Runtime) Missing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing
}

// Sweep requests the removal of unneeded containers; see runtime.Sweeper.
func (r *Runtime) Sweep() {
	select {
	case r.sweepRequested <- struct{}{}:
	default:
	}
}

// Run checks the engine periodically and removes unneeded containers until ctx ends. Then it
// cancels running removals.
func (r *Runtime) Run(ctx context.Context, c Watch) {
	defer r.close()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	dirty, swept := true, time.Now()
	for silent := 0; ; {
		missing := r.Missing()
		if missing == nil && (dirty || time.Since(swept) > sweepInterval) {
			dirty, swept = !r.sweep(ctx, c), time.Now()
		}
		c.OnCheck(ctx, missing)
		select {
		case <-r.sweepRequested:
			dirty = true
		case <-tick.C:
			if missing == nil && r.ping(ctx) {
				silent = 0
				continue
			}
			if silent++; missing == nil && silent < maxFailures {
				continue
			}
			if r.Check(ctx) == nil {
				dirty, silent = true, 0
			}
		case <-ctx.Done():
			return
		}
	}
}

// ping reports whether the engine still answers.
func (r *Runtime) ping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := r.engine.Ping(ctx, client.PingOptions{})
	return err == nil
}

// close ends the running removals.
func (r *Runtime) close() {
	r.mu.Lock()
	r.isClosed = true
	r.mu.Unlock()
	close(r.closed)
	r.removals.Wait()
}

// discard removes a container in the background. The channel is closed afterwards.
func (r *Runtime) discard(id string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	if r.isClosed {
		close(done)
		return done
	}
	r.removals.Go(func() {
		defer close(done)
		ctx, cancel := withCallTimeoutUntil(context.Background(), r.closed)
		defer cancel()
		r.remove(ctx, id)
	})
	return done
}

// sweep removes the agent's stopped containers of unknown instances. It returns false if it could
// not handle all of them.
func (r *Runtime) sweep(ctx context.Context, c Watch) bool {
	bounded, cancel := withCallTimeout(ctx)
	defer cancel()
	all, err := r.containers(bounded, "")
	if err != nil {
		r.log.Warn("cannot list containers to remove unneeded ones", "cause", err)
		return false
	}
	ok := true
	for _, found := range all {
		instance := found.Labels[instanceLabel]
		if found.State == container.StateRunning || !strings.HasPrefix(found.Labels[dirLabel], resolved(c.Root)+"/") || c.Known(instance) {
			continue
		}
		ok = r.removeEnded(ctx, instance, found.ID) && ok
	}
	return ok
}

// removeEnded removes a container unless it runs.
func (r *Runtime) removeEnded(ctx context.Context, instance, id string) bool {
	ctx, cancel := withCallTimeout(ctx)
	defer cancel()
	_, err := r.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{RemoveVolumes: true})
	switch {
	case err == nil:
		r.log.Info("removed an unneeded container", "container", id, "instance", instance)
	case !errdefs.IsNotFound(err) && !errdefs.IsConflict(err):
		r.log.Warn("cannot remove an unneeded container", "container", id, "instance", instance, "cause", err)
		return false
	}
	return true
}

// markUnreachable marks an error with runtime.ErrUnreachable if the engine does not answer now: a
// stopping engine returns various other errors.
func (r *Runtime) markUnreachable(ctx context.Context, op string, err error) error {
	if err == nil || errors.Is(err, runtime.ErrUnreachable) || ctx.Err() != nil || r.ping(ctx) || ctx.Err() != nil {
		return err
	}
	return unreachable(op, err)
}

// unreachable returns an error marked with runtime.ErrUnreachable.
func unreachable(op string, cause error) error {
	return &errs.Error{Op: "docker." + op, Kind: errs.Unavailable, Err: runtime.Unreachable(cause), Message: "the container engine does not answer: start it"}
}
