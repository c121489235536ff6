package supervise

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

// offered is a runtime to start something with. Unavailable, with the reason, when the
// node does not offer it; with runtime.ErrAway when it may in a moment.
func (k *Kit) offered(name fleet.RuntimeName) (runtime.Runtime, error) {
	if rt, ok := k.Runtimes[name]; ok {
		return rt, missing(name, rt)
	}
	for _, r := range k.Node().Runtimes {
		if r.Name == name && r.Why != "" {
			return nil, notOffered(errNotOffered, "the node does not offer the runtime %s: %s", name, r.Why)
		}
	}
	return nil, notOffered(errNotOffered, "the node does not offer the runtime %s", name)
}

// errNotOffered is in the chain of the error for a runtime that is not offered for good.
var errNotOffered = errors.New("it is not offered")

func notOffered(cause error, format string, args ...any) error {
	return &errs.Error{Op: "supervise.offered", Kind: errs.Unavailable, Err: cause, Message: fmt.Sprintf(format, args...)}
}

// missing tells why nothing can be started with a runtime now; nil when something can.
func missing(name fleet.RuntimeName, rt runtime.Runtime) error {
	lent, ok := rt.(runtime.Lent)
	if !ok {
		return nil
	}
	why := lent.Missing()
	if why == nil {
		return nil
	}
	return notOffered(runtime.Away(why), "the node does not offer the runtime %s: %s", name, errs.MessageOf(why))
}

// runtimePatience is how long a runtime that is away is waited for.
const runtimePatience = 8 * time.Second

// patiently tries what needs something that may be away for a moment, as it is while
// somebody restarts it, until it succeeds, fails for another cause, or runtimePatience is over.
func patiently(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(runtimePatience)
	for {
		err := try()
		if !errors.Is(err, runtime.ErrAway) || time.Now().After(deadline) || !pause.For(ctx, retryPause) {
			return err
		}
	}
}

// startReason is the reason for a start that failed: the runtime is not offered, or what
// it depends on is away; the image is not there; or another.
func startReason(err error, other fleet.Reason) fleet.Reason {
	switch {
	case errors.Is(err, runtime.ErrAway), errors.Is(err, errNotOffered):
		return fleet.ReasonRuntimeMissing
	case errs.Is(err, errs.NotFound):
		return fleet.ReasonImageMissing
	}
	return other
}

// sweepLeft has whatever runtime keeps something of what has ended remove it.
func (k *Kit) sweepLeft() {
	for _, rt := range k.Runtimes {
		if s, ok := rt.(runtime.Sweeper); ok {
			s.Sweep()
		}
	}
}

// adopting is the runtime to adopt with what was started by one of that name. Where
// the node offers it no more it is the plain one: that can tell, signal and kill what
// it cannot type to.
func (k *Kit) adopting(name fleet.RuntimeName) runtime.Runtime {
	if rt, ok := k.Runtimes[name]; ok {
		return rt
	}
	return k.Runtimes[fleet.RuntimeProcess]
}
