package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// offered returns a runtime that can start instances. Unavailable with the reason if the node
// does not offer it, wrapping runtime.ErrUnreachable if it may come back in a moment.
func (d *Deps) offered(name fleet.RuntimeName) (runtime.Runtime, error) {
	if rt, ok := d.Runtimes[name]; ok {
		return rt, missing(name, rt)
	}
	for _, r := range d.Node().Runtimes {
		if r.Name == name && r.Why != "" {
			return nil, notOffered(errNotOffered, "the node does not offer the runtime %s: %s", name, r.Why)
		}
	}
	return nil, notOffered(errNotOffered, "the node does not offer the runtime %s", name)
}

// errNotOffered is wrapped by the error for a runtime that the node does not offer.
var errNotOffered = errors.New("not offered")

func notOffered(cause error, format string, args ...any) error {
	return &errs.Error{Op: "driver.offered", Kind: errs.Unavailable, Err: cause, Message: fmt.Sprintf(format, args...)}
}

// missing returns why a runtime cannot start anything now, or nil.
func missing(name fleet.RuntimeName, rt runtime.Runtime) error {
	lent, ok := rt.(runtime.Checker)
	if !ok {
		return nil
	}
	why := lent.Missing()
	if why == nil {
		return nil
	}
	return notOffered(runtime.Unreachable(why), "the node does not offer the runtime %s: %s", name, errs.MessageOf(why))
}

// runtimePatience is how long a start waits for a runtime that is away.
const runtimePatience = 8 * time.Second

// retryAway retries while a runtime is away, as during its restart. It returns after success,
// another error, or runtimePatience.
func retryAway(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(runtimePatience)
	for {
		err := try()
		if !errors.Is(err, runtime.ErrUnreachable) || time.Now().After(deadline) || !pause.For(ctx, retryPause) {
			return err
		}
	}
}

// startReason is the reason of a failed start: the runtime is not offered or away, the image
// is missing, or other.
func startReason(err error, other fleet.Reason) fleet.Reason {
	switch {
	case errors.Is(err, runtime.ErrUnreachable), errors.Is(err, errNotOffered):
		return fleet.ReasonRuntimeMissing
	case errs.Is(err, errs.NotFound):
		return fleet.ReasonImageMissing
	}
	return other
}

// sweepRuntimes makes the runtimes remove what is left of ended instances.
func (d *Deps) sweepRuntimes() {
	for _, rt := range d.Runtimes {
		if s, ok := rt.(runtime.Sweeper); ok {
			s.Sweep()
		}
	}
}

// adopter is the runtime that adopts what the named runtime started. If the node no longer
// offers it, it is the process runtime, which can observe, signal and kill the process but
// not write to it.
func (d *Deps) adopter(name fleet.RuntimeName) runtime.Runtime {
	if rt, ok := d.Runtimes[name]; ok {
		return rt
	}
	return d.Runtimes[fleet.RuntimeProcess]
}
