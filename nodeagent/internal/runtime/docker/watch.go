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
	// lookAgain is how often it is looked whether the engine answers; one that was there
	// has gone when it does not patient times in a row.
	lookAgain = 5 * time.Second
	patient   = 2
	// sweepAgain is how often useless containers are looked for when nothing tells of any.
	sweepAgain = 10 * time.Minute
)

var errNotLooked = errs.New(errs.Unavailable, "nobody has looked for a container engine yet")

// Care is what Run needs to know. All of it is required.
type Care struct {
	// Root is below which the instances' directories are.
	Root string
	// Known reports whether an instance is known here: it sees to its container itself.
	Known func(instance string) bool
	// Looked takes what every look came to: why the engine cannot be used, nil when it can.
	Looked func(ctx context.Context, missing error)
}

// Look asks whether there is an engine that can be used. Unavailable, with what to do
// about it, when there is none.
func (r *Runtime) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	rootless, err := greet(ctx, r.engine, r.cfg.Dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing, r.rootless = err, rootless
	return err
}

// Missing is what the latest look came to; see runtime.Lent.
func (r *Runtime) Missing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing
}

// Sweep has useless containers looked for; see runtime.Sweeper.
func (r *Runtime) Sweep() {
	select {
	case r.rubbish <- struct{}{}:
	default:
	}
}

// Run follows the engine as it comes and goes, and removes containers that nobody needs,
// until ctx ends. Then no removal is waited for any more.
func (r *Runtime) Run(ctx context.Context, c Care) {
	defer r.close()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	dirty, swept := true, time.Now()
	for silent := 0; ; {
		missing := r.Missing()
		if missing == nil && (dirty || time.Since(swept) > sweepAgain) {
			dirty, swept = !r.sweep(ctx, c), time.Now()
		}
		c.Looked(ctx, missing)
		select {
		case <-r.rubbish:
			dirty = true
		case <-tick.C:
			if missing == nil && r.ping(ctx) {
				silent = 0
				continue
			}
			if silent++; missing == nil && silent < patient {
				continue
			}
			if r.Look(ctx) == nil {
				dirty, silent = true, 0
			}
		case <-ctx.Done():
			return
		}
	}
}

// ping reports whether an engine that was there still answers.
func (r *Runtime) ping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	_, err := r.engine.Ping(ctx, client.PingOptions{})
	return err == nil
}

// close ends the removals under way.
func (r *Runtime) close() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	close(r.closed)
	r.clearing.Wait()
}

// discard removes a container; the channel is closed when that was done, or given up.
func (r *Runtime) discard(id string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	if r.over {
		close(done)
		return done
	}
	r.clearing.Go(func() {
		defer close(done)
		ctx, cancel := until(context.Background(), r.closed)
		defer cancel()
		r.remove(ctx, id)
	})
	return done
}

// sweep removes our containers below a root that do not run and whose instances are not
// known, and reports whether it could look at all of them.
func (r *Runtime) sweep(ctx context.Context, c Care) bool {
	bounded, cancel := within(ctx)
	defer cancel()
	all, err := r.left(bounded, "")
	if err != nil {
		r.log.Warn("containers that nobody needs are not removed", "cause", err)
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

// removeEnded removes a container unless it runs after all.
func (r *Runtime) removeEnded(ctx context.Context, instance, id string) bool {
	ctx, cancel := within(ctx)
	defer cancel()
	_, err := r.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{RemoveVolumes: true})
	switch {
	case err == nil:
		r.log.Info("a container that nobody needs was removed", "container", id, "instance", instance)
	case !errdefs.IsNotFound(err) && !errdefs.IsConflict(err):
		r.log.Warn("a container that nobody needs was not removed", "container", id, "instance", instance, "cause", err)
		return false
	}
	return true
}

// orAway marks an error as that of an engine that does not answer if it does not by now:
// one that is ended says all kinds of things about what it was doing.
func (r *Runtime) orAway(ctx context.Context, op string, err error) error {
	if err == nil || errors.Is(err, runtime.ErrAway) || ctx.Err() != nil || r.ping(ctx) || ctx.Err() != nil {
		return err
	}
	return away(op, err)
}

// away marks an error as that of an engine that does not answer now.
func away(op string, cause error) error {
	return &errs.Error{Op: "docker." + op, Kind: errs.Unavailable, Err: runtime.Away(cause), Message: "the container engine does not answer: start it again"}
}
