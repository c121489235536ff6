package upstream

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/enforcer/client"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// enforcerService is the service name of enforcers' sessions and shards.
const enforcerService = "enforcer"

// replayTimeout limits a replay.
const replayTimeout = 12 * time.Second

// Enforcers calls the enforcers.
type Enforcers struct {
	store    *store.Client
	view     *view.View
	dial     func(url string) *client.Client
	breakers *breakers
}

// NewEnforcers returns a client of the replicas in the view, each with its own breaker.
func NewEnforcers(h *Health, c *store.Client, v *view.View, calls Connections) *Enforcers {
	dial := func(url string) *client.Client {
		return client.New(calls.To(pki.Identity{Service: pki.Enforcer}), url, calls.Token)
	}
	return &Enforcers{store: c, view: v, dial: dial, breakers: h.of[kindEnforcer]}
}

// Replay asks the enforcer that controls a group, and returns its replica. It returns Unavailable if no
// enforcer runs or it does not answer, Exhausted if it is overloaded, else the errors of client.Replay.
func (e *Enforcers) Replay(ctx context.Context, g fleet.GroupName, q client.ReplayQuestion) (out client.Replay, replica string, err error) {
	at, err := owner(ctx, e.store, e.view, enforcerService, g)
	if err != nil {
		return out, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	out, err = through(e.breakers, at.URL, "enforcer "+at.Replica, func() (client.Replay, error) {
		return e.dial(at.URL).Replay(ctx, g, q)
	})
	return out, at.Replica, err
}
