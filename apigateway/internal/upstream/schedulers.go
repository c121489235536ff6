package upstream

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/client"
)

// schedulerService is the service name of schedulers' sessions and shards.
const schedulerService = "scheduler"

const (
	// ownerTimeout limits the lookup of a shard's owner.
	ownerTimeout = 500 * time.Millisecond
	// explainTimeout limits an explanation. Without it, the stored reason is shown.
	explainTimeout = 2 * time.Second
	// simulateTimeout is slightly longer than a scheduler works on a simulation.
	simulateTimeout = 12 * time.Second
)

// Schedulers calls the schedulers.
type Schedulers struct {
	store    *store.Client
	view     *view.View
	dial     func(url string) *client.Client
	breakers *breakers
}

// NewSchedulers returns a client of the replicas in the view, each with its own breaker.
func NewSchedulers(h *Health, c *store.Client, v *view.View, calls Connections) *Schedulers {
	dial := func(url string) *client.Client {
		return client.New(calls.To(pki.Identity{Service: pki.Scheduler}), url, calls.Token)
	}
	return &Schedulers{store: c, view: v, dial: dial, breakers: h.of[kindScheduler]}
}

// Explain asks the scheduler that controls an instance's group, and returns its replica. It returns
// Unavailable if no scheduler runs or it does not answer, Exhausted if it is overloaded, else the errors
// of client.Explain.
func (s *Schedulers) Explain(ctx context.Context, i *fleet.Instance) (e client.Explanation, replica string, err error) {
	at, err := s.owner(ctx, i.Intent.Group)
	if err != nil {
		return e, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	e, err = through(s.breakers, at.URL, named(at), func() (client.Explanation, error) {
		return s.dial(at.URL).Explain(ctx, i.Intent.ID, s.view.Snapshot().Rev)
	})
	return e, at.Replica, err
}

// Simulate asks the scheduler that controls the group in question. For a node it asks one scheduler
// after the other until one answers. Errors are those of Explain and client.Simulate.
func (s *Schedulers) Simulate(ctx context.Context, q client.Question) (out client.Simulation, replica string, err error) {
	ctx, cancel := context.WithTimeout(ctx, simulateTimeout)
	defer cancel()
	asked := s.all()
	if q.Place != nil {
		at, err := s.owner(ctx, q.Place.Group)
		if err != nil {
			return out, "", err
		}
		asked = []*cluster.Session{at}
	}
	err = errs.New(errs.Unavailable, "no scheduler runs: retry when one does")
	for _, at := range asked {
		out, err = through(s.breakers, at.URL, named(at), func() (client.Simulation, error) {
			return s.dial(at.URL).Simulate(ctx, q, s.view.Snapshot().Rev)
		})
		if !errs.Is(err, errs.Unavailable) || ctx.Err() != nil {
			return out, at.Replica, err
		}
	}
	return out, "", err
}

func named(s *cluster.Session) string { return "scheduler " + s.Replica }

// owner returns the scheduler that owns a group's shard.
func (s *Schedulers) owner(ctx context.Context, g fleet.GroupName) (*cluster.Session, error) {
	return owner(ctx, s.store, s.view, schedulerService, g)
}

// owner returns the replica of a service that owns a group's shard. It reads etcd, because views do not
// contain shards.
func owner(ctx context.Context, c *store.Client, v *view.View, service string, g fleet.GroupName) (*cluster.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	shard, err := store.Get(ctx, c, keys.Shard(service, fleet.ShardOf(g)))
	switch {
	case errs.Is(err, errs.NotFound):
		return nil, errs.New(errs.Unavailable, "no %s decides about group %s now: retry when one runs", service, g)
	case err != nil:
		return nil, &errs.Error{
			Op: "upstream.owner", Kind: errs.KindOf(err), Err: err,
			Message: "cannot read from the store which " + service + " decides about group " + string(g) + ": retry in a moment",
		}
	}
	at, ok := v.Snapshot().Sessions.Get(service + "/" + shard.Replica)
	if !ok || at.URL == "" {
		return nil, errs.New(errs.Unavailable, "%s %s, which decides about group %s, cannot be called: its session has no URL", service, shard.Replica, g)
	}
	return at, nil
}

// all returns the reachable replicas in random order.
func (s *Schedulers) all() []*cluster.Session {
	var all []*cluster.Session
	for _, at := range s.view.Snapshot().ServiceSessions(schedulerService) {
		if at.URL != "" {
			all = append(all, at)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
