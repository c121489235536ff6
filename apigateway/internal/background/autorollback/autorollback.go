// Package autorollback rolls back failed deployments that ask for it.
//
// Every gateway does this. The comparisons of the transaction let one succeed, and the others then
// find nothing to do. A rollback that is refused, for example because no earlier deployment
// completed, is not tried again until the deployments of the group change.
package autorollback

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/reconcile"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	workers = 2
	// resync is how often all groups are checked again, in case a change was missed.
	resync = time.Hour
)

// Config has what a Watcher needs. All fields are required.
type Config struct {
	View *view.View
	// RollBack rolls back a deployment.
	RollBack func(ctx context.Context, g fleet.GroupName, number int64) error
	Log      *slog.Logger
}

// Watcher rolls back failed deployments. Create it with New.
type Watcher struct {
	cfg   Config
	queue *reconcile.Queue[fleet.GroupName]
}

// New returns a Watcher. Subscribe its OnBatch to the view.
func New(cfg Config) *Watcher {
	w := &Watcher{cfg: cfg}
	w.queue = reconcile.New(reconcile.Options[fleet.GroupName]{
		Name: "rollbacks", Reconcile: w.reconcile, Workers: workers, Backoff: reconcile.Backoff{Base: time.Second, Max: time.Minute},
		Resync: resync, Keys: func() iter.Seq[fleet.GroupName] { return failed(cfg.View.Snapshot()) },
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Log: cfg.Log,
	})
	return w
}

// Run works until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	for g := range failed(w.cfg.View.Snapshot()) {
		w.queue.Add(g)
	}
	_ = w.queue.Run(ctx) // ends with ctx
}

// OnBatch checks the groups whose deployments changed.
func (w *Watcher) OnBatch(b view.Batch) {
	for _, c := range b.Changes {
		if c.Kind != view.KindProgress {
			continue
		}
		if _, due := Due(b.After, c.Group()); due {
			w.queue.Add(c.Group())
		}
	}
}

// failed returns the groups with a deployment to roll back.
func failed(s *view.Snapshot) iter.Seq[fleet.GroupName] {
	return func(yield func(fleet.GroupName) bool) {
		for name := range s.Groups.All() {
			if _, due := Due(s, name); due && !yield(name) {
				return
			}
		}
	}
}

// Due returns the deployment of a group that failed and asks for a rollback that did not happen yet.
func Due(s *view.Snapshot, g fleet.GroupName) (number int64, due bool) {
	d, ok := s.LatestDeployment(g)
	if !ok || d.RolledBack || !d.Options.AutoRollback || d.State() != deployment.Failed {
		return 0, false
	}
	return d.Number, true
}

// reconcile is a reconcile.Reconciler.
func (w *Watcher) reconcile(ctx context.Context, g fleet.GroupName) (reconcile.Result, error) {
	number, due := Due(w.cfg.View.Snapshot(), g)
	if !due {
		return reconcile.Result{}, nil
	}
	err := w.cfg.RollBack(ctx, g, number)
	if _, still := Due(w.cfg.View.Snapshot(), g); err == nil || !still { // another gateway may have been faster
		return reconcile.Result{}, nil
	}
	var race *store.LostError
	if kind := errs.KindOf(err); errors.As(err, &race) || kind != errs.Conflict && kind != errs.Invalid && kind != errs.NotFound {
		return reconcile.Result{}, err // it is tried again
	}
	w.cfg.Log.Warn("a failed deployment was not rolled back", "group", g, "deployment", number, "err", err)
	return reconcile.Result{}, nil
}
