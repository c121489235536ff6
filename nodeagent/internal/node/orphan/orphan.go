// Package orphan finds instances that run on the node without a record in the store, logs
// them, and ends them after a grace period.
//
// There are two kinds: instances of the agent whose placement is gone, and processes with an
// instance's mark that neither the journal nor the store knows.
//
// A missing record is not an order, because a store may be emptied, restored or unavailable.
// An orphan is therefore stopped only if all of this is true:
//
//   - Under a live session the store has neither a placement on this node nor an intent,
//     both when the grace begins and when it has passed.
//   - As far as the node can tell, the store has lost nothing since the run began: it is not
//     emptied, replaced or restored from a backup. See journal.History.
//   - Only few instances are concerned. If a large part of them has no record, the store is
//     more likely to be wrong. Instances that ran when an operator deleted the node do not count.
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
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/controller"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/stop"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

const (
	// checkInterval is the longest pause between two checks. It is a twentieth of a short grace.
	checkInterval = 30 * time.Second
	// askTimeout bounds the reads about one orphan.
	askTimeout = 5 * time.Second
	// alwaysAllowed orphans may always be stopped, and more up to one in allowedShare of all that runs.
	alwaysAllowed = 2
	allowedShare  = 5
)

// Config configures a Keeper. All fields but Found and Grace are required.
type Config struct {
	Store *store.Client
	// Node is the node's record as last written.
	Node func() fleet.Node
	// Session reports whether the node has a live session.
	Session   func() bool
	Instances *controller.Controller
	Runtime   runtime.Runtime
	History   *journal.History
	// Found are the instances that ran at the start.
	Found map[fleet.InstanceID]runtime.Found
	// Root is the data directory, and RunDir the directory of an instance's run.
	Root   string
	RunDir func(fleet.InstanceID) string
	// Grace is how long an orphan keeps running. 0 means forever.
	Grace time.Duration
	Log   *slog.Logger
}

// Keeper finds and ends orphans. Create it with New.
type Keeper struct {
	cfg Config
	// strays were found at the start and are not instances of the agent.
	strays map[fleet.InstanceID]runtime.Found
	// tooManyLogged is set while there are too many orphans, so that this is logged once.
	tooManyLogged bool

	mu sync.Mutex
	// since is when each orphan was found to be one.
	since map[fleet.InstanceID]time.Time
}

// New returns a keeper. Run starts it.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, strays: maps.Clone(cfg.Found), since: map[fleet.InstanceID]time.Time{}}
}

// Strays counts the orphans that are not instances of the agent.
func (k *Keeper) Strays() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for id := range k.since {
		if !k.cfg.Instances.Has(id) {
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
	every := checkInterval
	if k.cfg.Grace > 0 {
		every = min(every, k.cfg.Grace/20)
	}
	ticker := time.NewTicker(max(every, time.Millisecond))
	defer ticker.Stop()
	for {
		k.check(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// check compares once what runs with the store and stops the orphans whose grace has passed.
func (k *Keeper) check(ctx context.Context) {
	unrecorded, running := k.cfg.Instances.Unrecorded()
	k.refresh()
	candidates := slices.Concat(unrecorded, slices.Collect(maps.Keys(k.strays)))
	slices.Sort(candidates)
	var due []fleet.InstanceID
	known, unexplained := map[fleet.InstanceID]time.Time{}, 0
	for _, id := range candidates {
		if first, ok := k.confirm(ctx, id); ok {
			known[id] = first
			if !k.abandoned(id) {
				unexplained++
			}
			if k.cfg.Grace > 0 && time.Since(first) >= k.cfg.Grace && k.inHistory(id) {
				due = append(due, id)
			}
		}
	}
	k.mu.Lock()
	k.since = known
	k.mu.Unlock()
	if k.tooMany(unexplained, running+len(k.strays)) {
		return
	}
	for _, id := range due {
		// The checks and stops above took time: the instance may have a record by now.
		if first, ok := k.confirm(ctx, id); ok && time.Since(first) >= k.cfg.Grace && k.inHistory(id) {
			k.stop(ctx, id)
		}
	}
}

// refresh drops the strays that have ended or were adopted.
func (k *Keeper) refresh() {
	if len(k.strays) == 0 {
		return
	}
	living, err := k.cfg.Runtime.Find(k.cfg.Root)
	if err != nil {
		k.cfg.Log.Warn("orphans: cannot read the host's processes, retrying", "error", err)
		return
	}
	for id := range k.strays {
		if _, ok := living[string(id)]; !ok || k.cfg.Instances.Has(id) {
			delete(k.strays, id)
		}
	}
}

// confirm checks one candidate and returns since when it is an orphan. If the store cannot be
// read, a known orphan stays known.
func (k *Keeper) confirm(ctx context.Context, id fleet.InstanceID) (time.Time, bool) {
	k.mu.Lock()
	first, before := k.since[id]
	k.mu.Unlock()
	recorded, err := k.hasRecord(ctx, id)
	switch {
	case err != nil:
		// The grace restarts: the store must be readable during all of it.
		return time.Now(), before
	case recorded:
		return first, false
	case !before:
		first = time.Now()
		k.cfg.Log.Warn("orphan: a process runs for an instance without a record; it is left running during the grace period",
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

// hasRecord reports whether the store has a record of an instance. The session must be live
// before and after the reads.
func (k *Keeper) hasRecord(ctx context.Context, id fleet.InstanceID) (bool, error) {
	if !k.cfg.Session() {
		return false, errNoSession
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := store.Get(ctx, k.cfg.Store, keys.Placement(k.cfg.Node().ID, id))
	if errs.Is(err, errs.NotFound) {
		_, err = store.Get(ctx, k.cfg.Store, keys.Intent(id))
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

// tooMany reports whether there are too many orphans to believe the store. Abandoned ones do
// not count.
func (k *Keeper) tooMany(orphans, running int) bool {
	many := orphans > max(alwaysAllowed, running/allowedShare)
	if many && !k.tooManyLogged {
		k.cfg.Log.Error("too many instances have no record, so none of them is stopped: check whether the store was emptied or is another cluster's, and stop unwanted instances by hand",
			"orphans", orphans, "running", running)
	}
	k.tooManyLogged = many
	return many
}

// stop ends an orphan.
func (k *Keeper) stop(ctx context.Context, id fleet.InstanceID) {
	f, stray := k.strays[id]
	if !stray {
		k.cfg.Instances.StopUnrecorded(id)
		return
	}
	if k.cfg.Instances.Has(id) { // adopted meanwhile
		return
	}
	k.cfg.Log.Warn("orphan: its grace has passed, it is stopped; its directory and log are kept", "instance", string(id))
	spec := runtime.Spec{InstanceID: string(id), RunDir: k.cfg.RunDir(id)}
	p, err := k.cfg.Runtime.Adopt(ctx, spec, f.Identity)
	if err == nil {
		err = stop.Gracefully(ctx, p, stop.Policy{Signal: syscall.SIGTERM, KillAfter: fleet.KillAfterSeconds * time.Second}, nil)
	}
	if err != nil && ctx.Err() == nil {
		k.cfg.Log.Error("orphan: cannot stop it", "instance", string(id), "error", err)
	}
}
