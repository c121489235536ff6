// Package orphan finds what runs on the node without a record in the store, says
// so, and ends it after a grace.
//
// Two kinds there are: instances the agent drives whose placement is gone, and
// processes that carry an instance's mark although neither journal nor store knows
// of the instance.
//
// Absence is no order (a store may be emptied, restored or away), so all of this
// has to be true before anything is stopped:
//
//   - Under a living session the store was asked and has neither a placement here
//     nor an intent, when the grace begins and again when it has passed.
//   - The store has lost nothing since the run began, as far as can be told: it is
//     neither emptied nor another cluster's nor from a backup. See Past.
//   - Few are concerned: where a large part of all that runs seems to have no
//     record, the store is doubted and not the processes. What ran when an operator
//     deleted the node does not count.
package orphan

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/stop"
)

const (
	// lookEvery is the longest time between two looks; a twentieth of the grace where that is less.
	lookEvery = 30 * time.Second
	// askTimeout bounds the questions about one orphan.
	askTimeout = 5 * time.Second
	// few is how many may always be stopped, share how many of all that run: a share-th part.
	few   = 2
	share = 5
)

// Instances are what the agent drives.
type Instances interface {
	// Listed is closed when it is known what has no record.
	Listed() <-chan struct{}
	// Unrecorded are the living ones without a placement, and the number of all living ones.
	Unrecorded() (ids []fleet.InstanceID, running int)
	// StopUnrecorded stops one of them by its own policy.
	StopUnrecorded(id fleet.InstanceID)
	// ReportAgain has the store told of every instance again.
	ReportAgain()
	// Driven reports whether the agent drives an instance.
	Driven(id fleet.InstanceID) bool
}

// Config is what a keeper needs. All but Found and Grace are required.
type Config struct {
	Store *store.Client
	// Node is the node's record as it was last written.
	Node func() fleet.Node
	// Session is true while the node's session lives.
	Session   func() bool
	Instances Instances
	Runtime   runtime.Runtime
	Past      Past
	// Found is what was found living at the start.
	Found map[fleet.InstanceID]runtime.Found
	// Root is the data directory, RunDir an instance's directory of its run.
	Root   string
	RunDir func(fleet.InstanceID) string
	// Grace is how long an orphan runs on. 0 means for ever.
	Grace time.Duration
	Log   *slog.Logger
}

// Keeper watches over orphans. Make it with New.
type Keeper struct {
	cfg Config
	// strays were found at the start and are driven by nobody.
	strays map[fleet.InstanceID]runtime.Found
	// doubted is set while the store is doubted, so that it is told once.
	doubted bool

	mu sync.Mutex
	// since is when each orphan was first known to be one.
	since map[fleet.InstanceID]time.Time
}

// New makes a keeper that begins when it is run.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, strays: maps.Clone(cfg.Found), since: map[fleet.InstanceID]time.Time{}}
}

// Strays is how many orphans are known now that nobody drives.
func (k *Keeper) Strays() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for id := range k.since {
		if !k.cfg.Instances.Driven(id) {
			n++
		}
	}
	return n
}

// Run looks for orphans until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	select {
	case <-k.cfg.Instances.Listed():
	case <-ctx.Done():
		return
	}
	var rewinding sync.WaitGroup
	defer rewinding.Wait()
	rewinding.Go(func() { k.followRewinds(ctx) })
	every := lookEvery
	if k.cfg.Grace > 0 {
		every = min(every, k.cfg.Grace/20)
	}
	ticker := time.NewTicker(max(every, time.Millisecond))
	defer ticker.Stop()
	for {
		k.look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// look compares what runs with the store once and stops whose time has come.
func (k *Keeper) look(ctx context.Context) {
	unrecorded, running := k.cfg.Instances.Unrecorded()
	k.refresh()
	candidates := slices.Concat(unrecorded, slices.Collect(maps.Keys(k.strays)))
	slices.Sort(candidates)
	var due []fleet.InstanceID
	known, lacking := map[fleet.InstanceID]time.Time{}, 0
	for _, id := range candidates {
		if first, ok := k.confirm(ctx, id); ok {
			known[id] = first
			if !k.givenUp(id) {
				lacking++
			}
			if k.cfg.Grace > 0 && time.Since(first) >= k.cfg.Grace && k.remembered(id) {
				due = append(due, id)
			}
		}
	}
	k.mu.Lock()
	k.since = known
	k.mu.Unlock()
	if k.doubts(lacking, running+len(k.strays)) {
		return
	}
	for _, id := range due {
		// Asking for all, and stopping those before, took time: it may be known by now.
		if first, ok := k.confirm(ctx, id); ok && time.Since(first) >= k.cfg.Grace && k.remembered(id) {
			k.stop(ctx, id)
		}
	}
}

// refresh drops the strays that have ended or were taken up.
func (k *Keeper) refresh() {
	if len(k.strays) == 0 {
		return
	}
	living, err := k.cfg.Runtime.Find(k.cfg.Root)
	if err != nil {
		k.cfg.Log.Warn("orphans: the host's processes cannot be looked at, trying on", "error", err)
		return
	}
	for id := range k.strays {
		if _, ok := living[string(id)]; !ok || k.cfg.Instances.Driven(id) {
			delete(k.strays, id)
		}
	}
}

// confirm asks the store about one candidate and returns since when it is an
// orphan. While the store cannot tell, one that was known stays known.
func (k *Keeper) confirm(ctx context.Context, id fleet.InstanceID) (time.Time, bool) {
	k.mu.Lock()
	first, before := k.since[id]
	k.mu.Unlock()
	recorded, err := k.recorded(ctx, id)
	switch {
	case err != nil:
		// The grace is one in which the store could be asked: it begins anew.
		return time.Now(), before
	case recorded:
		return first, false
	case !before:
		first = time.Now()
		k.cfg.Log.Warn("orphan: a process runs for an instance without a record; it is left alone until its grace has passed",
			"instance", string(id), "grace", k.grace(), "runDir", k.cfg.RunDir(id))
	}
	return first, true
}

func (k *Keeper) grace() string {
	if k.cfg.Grace == 0 {
		return "unlimited"
	}
	return k.cfg.Grace.String()
}

var errNoSession = errs.New(errs.Unavailable, "the node has no session")

// recorded asks whether the store knows of an instance, under a session that
// lived before and after.
func (k *Keeper) recorded(ctx context.Context, id fleet.InstanceID) (bool, error) {
	if !k.cfg.Session() {
		return false, errNoSession
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := store.Get(ctx, k.cfg.Store, store.PlacementKey(k.cfg.Node().ID, id))
	if errs.Is(err, errs.NotFound) {
		_, err = store.Get(ctx, k.cfg.Store, store.IntentKey(id))
	}
	switch {
	case err == nil:
		return true, nil
	case !errs.Is(err, errs.NotFound):
		return false, err
	case !k.cfg.Session():
		return false, errNoSession
	}
	return false, nil
}

// doubts reports whether too much has no record to be believed, beside what was given up.
func (k *Keeper) doubts(orphans, running int) bool {
	doubt := orphans > max(few, running/share)
	if doubt && !k.doubted {
		k.cfg.Log.Error("too much of what runs here has no record: none of it is stopped; look whether the store was emptied or is another cluster's, and stop what is not wanted by hand",
			"orphans", orphans, "running", running)
	}
	k.doubted = doubt
	return doubt
}

// stop ends an orphan.
func (k *Keeper) stop(ctx context.Context, id fleet.InstanceID) {
	f, stray := k.strays[id]
	if !stray {
		k.cfg.Instances.StopUnrecorded(id)
		return
	}
	if k.cfg.Instances.Driven(id) { // taken up meanwhile
		return
	}
	k.cfg.Log.Warn("orphan: its grace has passed, it is stopped; its directory and log stay", "instance", string(id))
	spec := runtime.Spec{InstanceID: string(id), RunDir: k.cfg.RunDir(id)}
	p, err := k.cfg.Runtime.Adopt(ctx, spec, f.Identity)
	if err == nil {
		err = stop.Gracefully(ctx, p, stop.Policy{Signal: syscall.SIGTERM, KillAfter: fleet.KillAfterSeconds * time.Second}, nil)
	}
	if err != nil && ctx.Err() == nil {
		k.cfg.Log.Error("orphan: not stopped", "instance", string(id), "error", err)
	}
}
