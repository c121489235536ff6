// Package report folds the node's usage and its instances' live figures into one
// record, written when something in it changed meaningfully, and so seldom that all
// nodes together stay below a hundred writes a second; see Interval.
package report

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/presence"
	"github.com/orreryhq/orrery/nodeagent/internal/supervise"
	"github.com/orreryhq/orrery/nodeagent/internal/usage"
)

const (
	// every is the time between two looks, and the shortest between two writes.
	every = time.Second
	// fleetRate is how many reports a second the store gets from all nodes together at
	// most: with everything else that is written at rest it stays below a hundred.
	fleetRate = 90
	// countEvery is the pause between looks at how many nodes there are.
	countEvery = time.Minute
	// hostEvery is the pause between looks at the host itself, which costs system
	// calls and tells less from one second to the next.
	hostEvery = 5 * time.Second
	// step is the change of a usage, as a share of the whole, that is worth a write.
	step = 0.05
	// cacheStep is the change of the cache that is, in bytes.
	cacheStep = 256 << 20
	// coarse is how old a known heartbeat may get before a newer one is worth a write.
	coarse       = 30 * time.Second
	writeTimeout = 3 * time.Second
)

// Config is what a reporter needs. All are required.
type Config struct {
	Store    *store.Client
	Node     fleet.NodeID
	DataDir  string
	Capacity fleet.Resources
	Fence    func() (f store.Fence, ok bool)
	Live     func() map[fleet.InstanceID]supervise.Live
	// Recall takes the report of the agent before this one, once, before the first write.
	Recall func(fleet.Report)
	// Players are those on the node's instances; they are written with the report.
	Players *presence.Board
	// Warm are the template versions at hand, in order of digest.
	Warm func() []string
	// Now reads the wall clock, with a monotonic reading.
	Now func() time.Time
	// Cached is how many bytes the cache of content holds.
	Cached func() int64
	Log    *slog.Logger
}

// Reporter writes the node's report.
type Reporter struct {
	cfg Config
	cpu usage.Processor
	// host is the host's usage as of hostAt.
	host    fleet.Report
	hostAt  time.Time
	written fleet.Report
	// writtenAt is when that was tried; zero before the first.
	writtenAt time.Time
	epoch     int64
	rev       int64
	read      bool
	// parts are the revisions of the node's players, 0 for a part that is not there.
	parts    [fleet.PresenceParts]int64
	recalled bool
	// interval is the shortest time between two writes, as of countedAt.
	interval  time.Duration
	countedAt time.Time
}

// New makes a reporter that waits for Run.
func New(cfg Config) *Reporter { return &Reporter{cfg: cfg, interval: every} }

// Interval is the shortest time between two reports of one node in a fleet of so
// many, so that all of them together stay below a bound.
func Interval(nodes int) time.Duration {
	return max(every, time.Duration(nodes)*time.Second/fleetRate)
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		at := r.cfg.Now() // the report's own time has lost the monotonic reading
		now := r.look(at)
		fence, ok := r.cfg.Fence()
		if !ok || (fence.Epoch() == r.epoch && !Differs(r.written, now, r.cfg.Capacity) && !r.cfg.Players.Changed()) {
			continue
		}
		r.count(ctx, at)
		if at.Sub(r.writtenAt) < r.interval {
			continue
		}
		r.writtenAt = at
		if err := r.write(ctx, fence, now); err != nil && ctx.Err() == nil {
			r.cfg.Log.Debug("report not written", "error", err)
		}
	}
}

// count learns now and then how many nodes share the store. What it cannot learn stays as it was.
func (r *Reporter) count(ctx context.Context, now time.Time) {
	if now.Sub(r.countedAt) < countEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nodes, err := store.Count(ctx, r.cfg.Store, store.NodeSessions())
	if err != nil {
		r.cfg.Log.Debug("nodes not counted", "error", err)
		return
	}
	r.interval, r.countedAt = Interval(nodes), now
}

func (r *Reporter) look(at time.Time) fleet.Report {
	if at.Sub(r.hostAt) >= hostEvery {
		free, total := usage.Disk(r.cfg.DataDir)
		r.host = fleet.Report{Node: r.cfg.Node, CPU: r.cpu.Used(), MemoryMiB: usage.Memory(), DiskFreeMiB: free, DiskMiB: total}
		r.hostAt = at
	}
	now := r.host
	now.At, now.Warm, now.CacheBytes = at.UTC(), r.cfg.Warm(), r.cfg.Cached()
	for id, l := range r.cfg.Live() {
		if l.Report != (fleet.InstanceReport{}) && l.Status.State.Running() {
			if now.Instances == nil {
				now.Instances = map[fleet.InstanceID]fleet.InstanceReport{}
			}
			now.Instances[id] = l.Report
		}
	}
	return now
}

func (r *Reporter) write(ctx context.Context, fence store.Fence, now fleet.Report) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := store.ReportKey(r.cfg.Node)
	if !r.read {
		old, err := store.Get(ctx, r.cfg.Store, key)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return errs.Wrap("report.write", err)
		}
		if err := r.readPlayers(ctx); err != nil {
			return err
		}
		r.rev, r.read = old.ModRev, true
		if !r.recalled && old.ModRev != 0 {
			r.recalled = true
			r.cfg.Recall(old)
			now = r.look(r.cfg.Now())
		}
	}
	t := store.Txn{Fences: []store.Fence{fence}, Writes: []store.Write{store.Replace(key, now, r.rev)}}
	settle := r.addPlayers(&t)
	rev, err := r.cfg.Store.Commit(ctx, t)
	settle(rev, err)
	if err != nil {
		r.read = false
		return errs.Wrap("report.write", err)
	}
	r.rev, r.written, r.epoch = rev, now, fence.Epoch()
	return nil
}

// Differs reports whether a newer report says something that the older does not:
// other players, a usage that moved by a step, a heartbeat much younger, another
// template at hand, a cache much larger or smaller.
func Differs(old, now fleet.Report, whole fleet.Resources) bool {
	if moved(old.CPU, now.CPU, 1) ||
		moved(float64(old.MemoryMiB), float64(now.MemoryMiB), float64(whole.MemoryMiB)) ||
		moved(float64(old.DiskFreeMiB), float64(now.DiskFreeMiB), float64(now.DiskMiB)) ||
		len(old.Instances) != len(now.Instances) || !slices.Equal(old.Warm, now.Warm) ||
		max(old.CacheBytes-now.CacheBytes, now.CacheBytes-old.CacheBytes) >= cacheStep {
		return true
	}
	for id, n := range now.Instances {
		o, ok := old.Instances[id]
		if !ok || o.PlayersKnown != n.PlayersKnown || o.Players != n.Players || o.MaxPlayers != n.MaxPlayers || moved(o.TPS, n.TPS, 20) ||
			n.HeartbeatAt.Sub(o.HeartbeatAt) >= coarse {
			return true
		}
	}
	return false
}

func moved(a, b, whole float64) bool {
	d := b - a
	if d < 0 {
		d = -d
	}
	return d > 0 && d >= step*whole
}
