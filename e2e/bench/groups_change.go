package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// changedGroups groups of changedShare instances each exist while single groups change.
	changedGroups, changedShare = 1000, 20
	changeSamples               = 200
	simNodes                    = 50
	// scaledTo is the size of the groups that scale up from nothing, scaleRuns how many of them.
	scaledTo, scaleRuns = 1000, 5
	// The bars for a pass over all groups and one change, in milliseconds, and for scaling, in seconds.
	passLimit, changeLimit, scaleLimit = 100, 5, 2
)

// changeWatch notes when changes of groups and the first new instance of each group arrive.
type changeWatch struct {
	mu      sync.Mutex
	changed map[fleet.GroupName]time.Time
	took    map[fleet.GroupName]time.Duration
	arrived chan struct{}
}

// Reset receives the initial list, which is not a change.
func (w *changeWatch) Reset([]store.KeyValue, int64) {}

// Apply notes changes.
func (w *changeWatch) Apply(changes []store.Change, _ int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		kind, rest, ok := keys.Split(c.Key)
		switch {
		case !ok || c.Removed:
		case kind == "groups":
			w.changed[fleet.GroupName(rest[0])] = time.Now()
		case kind == "instances":
			in, err := store.Decode[fleet.Intent](c.KeyValue)
			if at, changed := w.changed[in.Group]; err == nil && changed && w.took[in.Group] == 0 {
				w.took[in.Group] = time.Since(at)
				w.arrived <- struct{}{}
			}
		}
	}
}

// measureChanges measures the time from a change of a group to the enforcer's transaction, with many
// groups and instances.
func measureChanges(ctx context.Context, b *bench) error {
	s, err := b.startSimulation(ctx, simNodes)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.seed(ctx, changedGroups, changedShare); err != nil {
		return err
	}
	if err := s.decide(ctx); err != nil {
		return err
	}
	if !pause.For(ctx, 5*time.Second) { // until all groups were looked at
		return ctx.Err()
	}
	w := &changeWatch{changed: map[fleet.GroupName]time.Time{}, took: map[fleet.GroupName]time.Duration{}, arrived: make(chan struct{}, changeSamples)}
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	watcher.Go(func() { _ = s.store.Follow(watching, keys.Root, w) })
	if !pause.For(ctx, time.Second) {
		return ctx.Err()
	}
	for n := range changeSamples {
		if err := s.scale(ctx, fleet.GroupName(fmt.Sprintf("group-%04d", n)), changedShare+1); err != nil {
			return err
		}
		select {
		case <-w.arrived:
		case <-time.After(boundless):
			return fmt.Errorf("the enforcer did not react to change %d", n)
		}
	}
	var took []time.Duration
	for _, d := range w.took {
		took = append(took, d)
	}
	b.report("change_to_txn_ms", quantile(took, 0.5), "ms", changeLimit)
	b.report("change_to_txn_p99_ms", quantile(took, 0.99), "ms", -1)
	return nil
}

// scale changes the minimum of a group, as the gateway does.
func (s *simulation) scale(ctx context.Context, name fleet.GroupName, minimum int) error {
	g, err := store.Get(ctx, s.store, keys.Group(name))
	if err != nil {
		return err
	}
	next := g
	next.Spec.Scaling.Min, next.Revision, next.UpdatedAt = minimum, g.Revision+1, time.Now().UTC()
	_, err = s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.Group(name), next, g.ModRev)}})
	return err
}

// measureScale measures the time from a change of a group's minimum to all its instances online. Its
// agents report each instance as ready at once.
func measureScale(ctx context.Context, b *bench) error {
	s, err := b.startSimulation(ctx, simNodes)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.decide(ctx); err != nil {
		return err
	}
	var took []float64
	for n := range scaleRuns {
		name := fleet.GroupName(fmt.Sprint("scaled-", n))
		if _, err := s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.Group(name), s.group(name, 0))}}); err != nil {
			return err
		}
		if !pause.For(ctx, time.Second) {
			return ctx.Err()
		}
		began := time.Now()
		if err := s.scale(ctx, name, scaledTo); err != nil {
			return err
		}
		if err := s.until(ctx, "all instances", func(v *view.Snapshot) bool { return len(serving(v, name)) == scaledTo }); err != nil {
			return err
		}
		took = append(took, time.Since(began).Seconds())
	}
	slices.Sort(took)
	b.report("scale_1000_s", took[len(took)/2], "s", scaleLimit)
	return nil
}
