// Package report writes the node's usage into one record, its instances' live figures
// and its players into parts of their own. It writes those that changed meaningfully, in
// one transaction, and so seldom that all nodes together stay below a bound; see Interval.
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
	// fleetBytes is how many bytes a second all nodes together send in such transactions,
	// as store.Txn counts them. About half of that stays in etcd's history.
	fleetBytes = 80 << 10
	// longest bounds the pause after a large transaction: players are known elsewhere no
	// later than that, however many move.
	longest = 30 * time.Second
	// countEvery is the pause between looks at how many nodes there are.
	countEvery = time.Minute
	// hostEvery is the pause between looks at the host itself, which costs system
	// calls and tells less from one second to the next.
	hostEvery = 5 * time.Second
	// step is the change of a usage, as a share of the whole, that is worth a write.
	step = 0.05
	// cacheStep is the change of the cache that is, in bytes.
	cacheStep = 256 << 20
	// staticStep is the least change of a static instance's directory that is, in bytes.
	staticStep = 1 << 20
	// coarse is how old the report, and an instance's heartbeat in it, may get before it is written
	// although nothing else changed, in intervals of a fleet of this size, of a second at least.
	coarse       = 30
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
	// Begun counts the runs that began. Reported takes the revision of a report that was
	// written after that many; see journal.Past.
	Begun    func() uint64
	Reported func(rev int64)
	// Now reads the wall clock, with a monotonic reading.
	Now func() time.Time
	// Static are the sizes of the directories of static instances, by GROUP/NAME.
	Static func() map[string]int64
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
	// recordAt is when the node's own record was written last; zero before the first time.
	recordAt time.Time
	epoch    int64
	rev      int64
	read     bool
	// begun are the runs that had begun when it was written.
	begun uint64
	// figures are the parts of the instances' live figures as written, usageAt when what they
	// use was last told.
	figures [fleet.ReportParts]figures
	usageAt time.Time
	// parts are the revisions of the node's players, 0 for a part that is not there.
	parts    [fleet.PresenceParts]int64
	recalled bool
	// nodes is the size of the fleet as of countedAt, sent the size of the last transaction.
	nodes, sent int
	countedAt   time.Time
}

// New makes a reporter that waits for Run.
func New(cfg Config) *Reporter { return &Reporter{cfg: cfg} }

// Interval is the pause of one node after a report of so many bytes, in a fleet of so many
// nodes. All of them together stay below fleetRate, and below fleetBytes unless the pause
// would exceed longest.
func Interval(nodes, sent int) time.Duration {
	byBytes := time.Duration(nodes) * time.Duration(sent) * time.Second / fleetBytes
	return max(every, time.Duration(nodes)*time.Second/fleetRate, min(byBytes, longest))
}

// heartbeatStep is how old a known heartbeat, and the node's record, may get before a newer one
// is written.
func (r *Reporter) heartbeatStep() time.Duration { return coarse * Interval(r.nodes, 0) }

// due reports whether the node's record is as old as it said that it would become.
func (r *Reporter) due(at time.Time) bool {
	return at.Sub(r.recordAt) >= time.Duration(r.written.EverySeconds)*time.Second
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
		if !ok || (fence.Epoch() == r.epoch && !Differs(r.written, now, r.cfg.Capacity) && !r.figuresChanged(now) && !r.cfg.Players.Changed() && r.cfg.Begun() == r.begun && !r.due(at)) {
			continue
		}
		r.count(ctx, at)
		if at.Sub(r.writtenAt) < Interval(r.nodes, r.sent) {
			continue
		}
		r.writtenAt = at
		if err := r.write(ctx, fence, at, now); err != nil && ctx.Err() == nil {
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
	r.nodes, r.countedAt = nodes, now
}

func (r *Reporter) look(at time.Time) fleet.Report {
	if at.Sub(r.hostAt) >= hostEvery {
		free, total := usage.Disk(r.cfg.DataDir)
		r.host = fleet.Report{Node: r.cfg.Node, CPU: r.cpu.Used(), MemoryMiB: usage.Memory(), DiskFreeMiB: free, DiskMiB: total}
		r.hostAt = at
	}
	now := r.host
	now.At, now.Warm, now.CacheBytes, now.StaticBytes = at.UTC(), r.cfg.Warm(), r.cfg.Cached(), r.cfg.Static()
	for id, l := range r.cfg.Live() {
		figures := l.Report
		if !l.Status.State.Running() { // what it said is of a run that has ended
			figures = fleet.InstanceReport{Usage: l.Report.Usage.DiskOnly()}
		}
		if figures != (fleet.InstanceReport{}) {
			if now.Instances == nil {
				now.Instances = map[fleet.InstanceID]fleet.InstanceReport{}
			}
			now.Instances[id] = figures
		}
	}
	return now
}

func (r *Reporter) write(ctx context.Context, fence store.Fence, at time.Time, now fleet.Report) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := store.ReportKey(r.cfg.Node)
	if !r.read {
		if err := r.readAll(ctx, key); err != nil {
			return err
		}
		at = r.cfg.Now()
		now = r.look(at)
	}
	t, begun := store.Txn{Fences: []store.Fence{fence}}, r.cfg.Begun()
	host := r.rev == 0 || begun != r.begun || fence.Epoch() != r.epoch || Differs(r.written, now, r.cfg.Capacity) || r.due(at)
	if host {
		now.EverySeconds = int(r.heartbeatStep() / time.Second)
		record := now
		record.Instances, record.Parted = nil, true
		t.Writes = append(t.Writes, store.Replace(key, record, r.rev))
	}
	settleFigures, settlePlayers := r.addFigures(&t, now), r.addPlayers(&t)
	if len(t.Writes) == 0 {
		return nil
	}
	r.sent = t.Bytes()
	rev, err := r.cfg.Store.Commit(ctx, t)
	settlePlayers(rev, err)
	if err != nil {
		r.read = false
		return errs.Wrap("report.write", err)
	}
	settleFigures(rev)
	if host {
		r.rev, r.written, r.recordAt, r.epoch = rev, now, at, fence.Epoch()
	}
	if begun != r.begun {
		r.cfg.Reported(rev)
		r.begun = begun
	}
	return nil
}

// readAll learns what of the node is in the store.
func (r *Reporter) readAll(ctx context.Context, key store.Key[fleet.Report]) error {
	old, err := store.Get(ctx, r.cfg.Store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap("report.readAll", err)
	}
	if err := r.readPlayers(ctx); err != nil {
		return err
	}
	if err := r.readFigures(ctx, !r.recalled); err != nil {
		return err
	}
	if !r.recalled { // an older agent wrote the figures into the report itself
		r.cfg.Recall(old)
	}
	r.rev, r.read, r.recalled, r.written = old.ModRev, true, true, fleet.Report{}
	return nil
}

// Differs reports whether a newer report says something of the node that the older does
// not: a usage that moved by a step, another template at hand, a cache much larger or
// smaller, other data of static instances.
func Differs(old, now fleet.Report, whole fleet.Resources) bool {
	return moved(old.CPU, now.CPU, 1) ||
		moved(float64(old.MemoryMiB), float64(now.MemoryMiB), float64(whole.MemoryMiB)) ||
		moved(float64(old.DiskFreeMiB), float64(now.DiskFreeMiB), float64(now.DiskMiB)) ||
		!slices.Equal(old.Warm, now.Warm) ||
		max(old.CacheBytes-now.CacheBytes, now.CacheBytes-old.CacheBytes) >= cacheStep ||
		staticDiffers(old.StaticBytes, now.StaticBytes)
}

// staticDiffers reports whether a directory of a static instance is new or gone, or its
// size moved by a step.
func staticDiffers(old, now map[string]int64) bool {
	if len(old) != len(now) {
		return true
	}
	for name, bytes := range now {
		was, ok := old[name]
		if d := max(bytes-was, was-bytes); !ok || d >= staticStep && moved(float64(was), float64(bytes), float64(max(was, bytes))) {
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
